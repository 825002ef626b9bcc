//! Loops that run as long as the service does.

pub(crate) mod hints;
pub(crate) mod live;
pub(crate) mod looks;
pub(crate) mod purge;
pub(crate) mod pushes;
pub(crate) mod sweep;

use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::time::sleep;

/// Waits. False when the service is about to stop.
async fn pause(length: Duration, drain: &Drain) -> bool {
    tokio::select! {
        () = sleep(length) => true,
        () = drain.closing() => false,
    }
}
