//! Reconciles with LiveKit at fixed intervals; one replica does it for all.

use std::sync::Arc;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    let every = service.timing.reconcile;
    loop {
        if let Err(error) = service.reconcile(every).await {
            tracing::warn!(%error, "The rooms could not be compared with LiveKit");
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(every) => {}
        }
    }
}
