//! Notifications of the owner's devices about ended runs: stored with the change that ends the run, and given to identity afterwards,
//! at least once.

use std::time::Duration;

use ensemble_rpc::identity::PushEvent;
use ensemble_rpc::{MOST_EVENTS, PushGiver};
use ensemble_store_kit::{Conn, Db, StoreError, Topic};
use ensemble_types::pushes::{PushKind, new_attention};
use ensemble_types::runs::RunStatus;

use crate::error::Error;
use crate::store::pushes::{self, Push};
use crate::store::runs::LockedRun;

/// The end of a shorter run is no notification, unless it failed.
const LONG_RUN: Duration = Duration::from_secs(60);
/// For how long ends are taken: longer than the deadline of a call.
const TAKEN: Duration = Duration::from_secs(30);

/// Published when there is something to give.
pub(crate) fn topic() -> Topic {
    Topic::new("pushes", "due")
}

/// Notes that a run has ended.
pub(super) fn note(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    let was_long = run.started_at.is_some_and(|started| run.now.since(started) >= LONG_RUN);
    let kind = match run.status {
        RunStatus::Failed => PushKind::Failed,
        RunStatus::Completed if was_long => PushKind::Finished,
        _ => return Ok(()),
    };
    let kind = kind.as_str().to_owned();
    let push = Push { run_id: run.id, owner_id: run.owner, kind, attention: new_attention() };
    pushes::insert(tx, &push)?;
    tx.notify(topic());
    Ok(())
}

/// Gives identity what is due.
///
/// # Errors
/// The database cannot be read, or identity did not take it. It is given again later.
pub(crate) async fn give(db: &Db, identity: &PushGiver) -> Result<(), Error> {
    loop {
        let take = move |tx: &mut Conn| {
            let until = tx.now()?.plus(TAKEN);
            pushes::take(tx, MOST_EVENTS as i64, until)
        };
        let taken = db.write("take ended runs to notify of", take).await?;
        if taken.is_empty() {
            return Ok(());
        }
        identity.give(taken.iter().map(event).collect()).await?;
        let record = move |tx: &mut Conn| taken.iter().try_for_each(|push| pushes::given(tx, push));
        db.write("record given ends of runs", record).await?;
    }
}

fn event(push: &Push) -> PushEvent {
    PushEvent {
        user_id: push.owner_id.to_string(),
        kind: push.kind.clone(),
        session_id: String::new(),
        run_id: push.run_id.to_string(),
        attention: push.attention.clone(),
    }
}
