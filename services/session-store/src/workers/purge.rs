//! Purges deleted sessions: at once when this process deleted one, and at a fixed interval.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::{Db, Retention};

use super::pause;
use crate::operations::live;
use crate::operations::purge::{self, Purged};
use crate::operations::quotas::Quotas;

/// Pause between two batches, so that the purge does not slow down other work.
const BATCH_PAUSE: Duration = Duration::from_millis(5);

/// `kept`: how long sessions that are over are kept. `None`: for good.
pub(crate) async fn run(
    db: Db,
    (kept, quotas): (Option<Duration>, Quotas),
    metrics: Retention,
    every: Duration,
    drain: Drain,
) {
    let mut deletions = purge::subscribe(&db);
    loop {
        // What was deleted by this is purged at once.
        while let Some(kept) = kept {
            match purge::expire(&db, &quotas, kept).await {
                Ok(0) => break,
                Ok(count) => {
                    tracing::info!(count, "Deleted sessions that are not kept any longer");
                    if !pause(BATCH_PAUSE, &drain).await {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(?error, "Could not delete old sessions");
                    break;
                }
            }
        }
        loop {
            match purge::step(&db).await {
                Ok(Purged::Nothing) => break,
                Ok(some) => {
                    match some {
                        Purged::Messages(count) => metrics.count_removed("messages", count),
                        _ => metrics.count_removed("sessions", 1),
                    }
                    if !pause(BATCH_PAUSE, &drain).await {
                        break;
                    }
                }
                Err(error) => {
                    tracing::warn!(?error, "Could not purge deleted sessions");
                    break;
                }
            }
        }
        if let Err(error) = purge::remove_old_viewings(&db).await {
            tracing::warn!(?error, "Could not remove old viewings");
        }
        if let Err(error) = live::remove_old(&db).await {
            tracing::warn!(?error, "Could not remove old live frames");
        }
        tokio::select! {
            () = deletions.changed() => {}
            running = pause(every, &drain) => if !running { return },
        }
    }
}
