//! While LiveKit is unavailable, asks whether it is back, so that no request has to find out.

use std::sync::Arc;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;

pub(crate) async fn run(service: Arc<VoiceGateway>, drain: Drain) {
    let breaker = service.livekit.breaker();
    loop {
        tokio::select! {
            () = drain.closing() => return,
            () = breaker.opened() => {}
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(breaker.probe_every()) => {}
        }
        if let Err(error) = service.livekit.probe().await {
            tracing::debug!(%error, "LiveKit is still unavailable");
        }
    }
}
