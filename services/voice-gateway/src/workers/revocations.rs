//! Ends the sessions of removed devices and revoked tokens when identity's keys change. It looks again with each sweep, for a
//! start that was under way at that moment.

use std::sync::Arc;

use ensemble_chassis::{Drain, KeySource};
use tokio::time::sleep;

use crate::VoiceGateway;

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    let mut keys = service.keys.changes();
    loop {
        if let Err(error) = service.end_refused().await {
            tracing::warn!(%error, "The sessions of removed devices could not be ended; it is tried again soon");
        }
        tokio::select! {
            () = drain.closing() => return,
            Ok(()) = keys.changed() => {}
            () = sleep(service.timing.sweep) => {}
        }
    }
}
