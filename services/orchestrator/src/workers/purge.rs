//! Purges deleted runs: at once when one was deleted, and at a fixed interval for notifications that were missed.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;
use tokio::time::timeout;

use crate::operations::purge;

/// How often it looks for deleted runs without a notification.
const EVERY: Duration = Duration::from_secs(60);
/// Pause between two batches, so that the purge does not slow down other work.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn run(db: Db, drain: Drain) {
    let mut deletions = purge::subscribe(&db);
    while !drain.is_closing() {
        let pause = match purge::step(&db).await {
            Ok(true) => BATCH_PAUSE,
            Ok(false) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "Could not purge deleted runs");
                EVERY
            }
        };
        tokio::select! {
            () = deletions.changed() => {}
            // The timeout is the normal end of the pause.
            _ = timeout(pause, drain.closing()) => {}
        }
    }
}
