//! Purges deleted sessions: at once when this process deleted one, and at a fixed interval.

use std::time::{Duration, Instant};

use ensemble_chassis::Drain;
use ensemble_store_kit::{Db, Retention, rest_after};

use super::pause;
use crate::operations::live;
use crate::operations::purge::{self, Purged};
use crate::operations::quotas::Quotas;

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
            let begun = Instant::now();
            match purge::expire(&db, &quotas, kept).await {
                Ok(0) => break,
                Ok(count) => {
                    tracing::info!(count, "Deleted sessions that are not kept any longer");
                    if !pause(rest_after(begun.elapsed()), &drain).await {
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
            let begun = Instant::now();
            match purge::step(&db).await {
                Ok(Purged::Nothing) => break,
                Ok(some) => {
                    match some {
                        Purged::Messages(count) => metrics.count_removed("messages", count),
                        _ => metrics.count_removed("sessions", 1),
                    }
                    if !pause(rest_after(begun.elapsed()), &drain).await {
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
