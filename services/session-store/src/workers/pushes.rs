//! Gives events to identity, which notifies the owners' devices, and looks for machines that went away in the middle of a turn.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_rpc::PushGiver;
use ensemble_store_kit::Db;
use tokio::time::sleep;

use crate::operations::pushes;

/// What another replica has taken is looked for after this time.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(1);

pub(crate) async fn give(db: Db, identity: PushGiver, drain: Drain) {
    let mut added = db.notifier().subscribe(pushes::topic());
    while !drain.is_closing() {
        let next = pushes::give(&db, &identity).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "Events to notify of cannot be read");
            Some(PAUSE_AFTER_ERROR)
        });
        tokio::select! {
            () = added.changed() => {}
            () = sleep(next.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)) => {}
            () = drain.closing() => return,
        }
    }
}

pub(crate) async fn note_absent(db: Db, online_for: Duration, drain: Drain) {
    let every = (online_for / 10).max(Duration::from_millis(50));
    while super::pause(every, &drain).await {
        if let Err(error) = pushes::note_absent(&db, online_for).await {
            tracing::warn!(%error, "Could not look for machines that went away");
        }
    }
}
