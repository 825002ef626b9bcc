//! Does the rest of changes that are too large for one transaction: at once when one was made, and at a fixed interval for
//! notifications that were missed and for what a replica left that died.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;
use tokio::time::timeout;

use crate::operations::unsettled::{self, Step};

/// How often it looks for something to do without a notification.
const EVERY: Duration = Duration::from_secs(5);
/// The pause while others have locked the runs, or are faster.
const LOCKED_PAUSE: Duration = Duration::from_millis(50);
/// The pause after a database error.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

pub(crate) async fn run(db: Db, drain: Drain) {
    let mut left = unsettled::subscribe(&db);
    while !drain.is_closing() {
        let pause = match unsettled::step(&db).await {
            // Those who wait for the end of the run wait for this.
            Ok(Step::Some) => continue,
            Ok(Step::Locked) => LOCKED_PAUSE,
            Ok(Step::Nothing) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "Could not look for unsettled runs");
                ERROR_PAUSE
            }
        };
        tokio::select! {
            () = left.changed() => {}
            // The timeout is the normal end of the pause.
            _ = timeout(pause, drain.closing()) => {}
        }
    }
}
