//! Sends looks that any replica was asked for to the machines that have a stream here, and removes what is left of them.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;
use tokio::time::{Instant, sleep};

use crate::operations::hints::HintReaders;
use crate::operations::looks::{self, Looks};

/// How often old looks are removed, and how long after the last new one.
const EVERY: Duration = Duration::from_secs(5);
const CLEARED_FOR: Duration = Duration::from_secs(60);

pub(crate) async fn run(db: Db, looks: Looks, readers: HintReaders, drain: Drain) {
    let mut asked = looks::subscribe(&db);
    // A replica that was stopped may have left some.
    let mut last = Instant::now();
    let mut cleared = Instant::now();
    loop {
        let has_some = last.elapsed() < CLEARED_FOR;
        let done = tokio::select! {
            () = asked.changed() => {
                last = Instant::now();
                looks::relay(&db, &looks, &readers).await
            }
            () = sleep(EVERY.saturating_sub(cleared.elapsed())), if has_some => {
                cleared = Instant::now();
                looks::remove_old(&looks).await
            }
            () = drain.closing() => return,
        };
        if let Err(error) = done {
            tracing::warn!(?error, "Could not pass looks on");
        }
    }
}
