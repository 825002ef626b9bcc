//! Loops: the net under the wake-ups, and the purge of deleted sessions.

use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::store::{Purged, Store, Sweep};

/// Between two batches of the purge, so that it leaves room for those who wait.
const BREATH: Duration = Duration::from_millis(5);

pub(crate) async fn sweep(store: Store, every: Duration, drain: Drain) {
    let mut sweep = Sweep::default();
    while pause(every, &drain).await {
        if let Err(error) = store.sweep(&mut sweep).await {
            tracing::warn!(?error, "Could not look for changes whose wake-up was lost");
        }
    }
}

pub(crate) async fn purge(store: Store, every: Duration, drain: Drain) {
    let mut deleted = store.watch_deletions();
    loop {
        loop {
            match store.purge_step().await {
                Ok(Purged::Some) if pause(BREATH, &drain).await => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(?error, "Could not purge deleted sessions");
                    break;
                }
            }
        }
        if let Err(error) = store.forget_viewings().await {
            tracing::warn!(?error, "Could not forget viewings");
        }
        tokio::select! {
            () = deleted.changed() => {}
            go_on = pause(every, &drain) => if !go_on { return },
        }
    }
}

/// False when the service is about to end.
async fn pause(length: Duration, drain: &Drain) -> bool {
    tokio::select! {
        () = sleep(length) => true,
        () = drain.closing() => false,
    }
}
