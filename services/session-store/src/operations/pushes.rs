//! What the owner's devices are notified of: noted with the change that causes it, and given to identity afterwards, at least once.

use std::time::Duration;

use ensemble_rpc::identity::PushEvent;
use ensemble_rpc::{MOST_EVENTS, PushGiver};
use ensemble_store_kit::{Conn, Db, StoreError, Topic};
use ensemble_types::attention::Attention;
use ensemble_types::pushes::{PushKind, new_attention};
use ensemble_types::time::Timestamp;

use crate::domain::access::Access;
use crate::domain::attention::NewAttention;
use crate::domain::push::PushRules;
use crate::error::Error;
use crate::store::pushes::{self, Push};
use crate::store::sessions::SessionRow;

/// For how long events are taken: longer than the deadline of a call.
const TAKEN: Duration = Duration::from_secs(30);
/// Machines that went away, looked for at once.
const ABSENT: i64 = 100;

/// Published when there is something to give.
pub(crate) fn topic() -> Topic {
    Topic::new("pushes", "due")
}

/// What a session wants after this, with a note of what that means for the owner's devices.
pub(super) fn attention(
    tx: &mut Conn,
    session: &SessionRow,
    set: &NewAttention,
    access: &Access,
    (rules, now): (PushRules, Timestamp),
) -> Result<Attention, Error> {
    let before = session.attention.attention(tx.operation())?;
    let after = set.after(&before, access, now)?;
    if before.kind == after.kind && before.id == after.id {
        return Ok(after);
    }
    pushes::supersede(tx, session.id)?;
    let worked = session.thinking_since.map(|since| now.since(since));
    if let (Some((kind, wait)), Some(attention)) = (rules.notify_of(after.kind, worked), &after.id) {
        let event = pushes::event(session.id, session.owner_id, kind, attention.clone());
        pushes::insert(tx, &event, now.plus(wait))?;
    }
    tx.notify(topic());
    Ok(after)
}

/// Takes back what people were notified of a session that was deleted.
pub(super) fn forget(tx: &mut Conn, session: &SessionRow) -> Result<(), StoreError> {
    pushes::supersede(tx, session.id)?;
    tx.notify(topic());
    Ok(())
}

/// Gives identity what is due, and says when the next is.
pub(crate) async fn give(db: &Db, identity: &PushGiver) -> Result<Option<Duration>, StoreError> {
    loop {
        let take = move |tx: &mut Conn| {
            let now = tx.now()?;
            let taken = pushes::take(tx, MOST_EVENTS as i64, now.plus(TAKEN))?;
            Ok::<_, StoreError>((taken, pushes::next_due(tx)?.map(|due| due.since(now))))
        };
        let (taken, next) = db.write("take events to notify of", take).await?;
        if taken.is_empty() {
            return Ok(next);
        }
        if let Err(error) = identity.give(taken.iter().map(event).collect()).await {
            tracing::warn!(%error, "Events could not be given to identity; they are given again");
            return Ok(Some(TAKEN));
        }
        let record = move |tx: &mut Conn| taken.iter().try_for_each(|push| pushes::given(tx, push));
        db.write("record given events", record).await?;
    }
}

/// Notes that machines went away while their agents worked.
pub(crate) async fn note_absent(db: &Db, online_for: Duration) -> Result<(), StoreError> {
    let find = move |tx: &mut Conn| {
        let now = tx.now()?;
        let absent = pushes::absent(tx, now.minus(online_for), ABSENT)?;
        for (session, owner) in &absent {
            let event = pushes::event(*session, *owner, PushKind::Away, new_attention());
            pushes::insert(tx, &event, now)?;
            tx.notify(topic());
        }
        Ok(absent.len())
    };
    while db.write("look for machines that went away", find).await? > 0 {}
    Ok(())
}

fn event(push: &Push) -> PushEvent {
    PushEvent {
        user_id: push.owner_id.to_string(),
        kind: push.kind.clone(),
        session_id: push.session_id.to_string(),
        run_id: String::new(),
        attention: push.attention.clone(),
    }
}
