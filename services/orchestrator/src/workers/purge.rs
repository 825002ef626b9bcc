//! Purges deleted runs: at once when one was deleted, and at a fixed interval for notifications that were missed. Runs that are not kept any
//! longer are deleted at the same interval.

use std::time::{Duration, Instant};

use ensemble_chassis::Drain;
use ensemble_store_kit::{Db, Quota, Retention, StoreError, rest_after};
use tokio::time::timeout;

use crate::operations::purge::{self, Purged};

/// How often it looks for deleted runs without a notification.
const EVERY: Duration = Duration::from_secs(60);

/// `kept`: how long runs are kept after their end. `None`: for good.
pub(crate) async fn run(db: Db, (kept, quota): (Option<Duration>, Quota), metrics: Retention, drain: Drain) {
    let mut deletions = purge::subscribe(&db);
    while !drain.is_closing() {
        let begun = Instant::now();
        let pause = match purge::step(&db).await {
            Ok(Some(purged)) => {
                match purged {
                    Purged::Run => metrics.count_removed("runs", 1),
                    Purged::Tasks(count) => metrics.count_removed("tasks", count),
                    Purged::Output(count) => metrics.count_removed("output", count),
                }
                rest_after(begun.elapsed())
            }
            Ok(None) => match expire(&db, &quota, kept).await {
                Ok(0) => EVERY,
                Ok(count) => {
                    tracing::info!(
                        count,
                        "Deleted runs that are not kept any longer, or forgot the ids of deleted ones"
                    );
                    rest_after(begun.elapsed())
                }
                Err(error) => {
                    tracing::warn!(%error, "Could not delete old runs");
                    EVERY
                }
            },
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

/// Deletes old runs, or else forgets the ids of those that were deleted long ago. Returns how many.
async fn expire(db: &Db, quota: &Quota, kept: Option<Duration>) -> Result<usize, StoreError> {
    let deleted = match kept {
        Some(kept) => purge::expire(db, quota, kept).await?,
        None => 0,
    };
    if deleted > 0 { Ok(deleted) } else { purge::forget_old(db).await }
}
