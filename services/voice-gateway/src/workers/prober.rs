//! While LiveKit is away, asks whether it is back, so that no caller has to.

use std::sync::Arc;

use ensemble_chassis::Drain;
use tokio::time::sleep;

use crate::VoiceGateway;

pub(crate) async fn probe(gateway: Arc<VoiceGateway>, drain: Drain) {
    let breaker = gateway.livekit.breaker();
    loop {
        tokio::select! {
            () = drain.closing() => return,
            () = breaker.opened() => {}
        }
        tokio::select! {
            () = drain.closing() => return,
            () = sleep(breaker.probe_every()) => {}
        }
        if let Err(error) = gateway.livekit.probe().await {
            tracing::debug!(%error, "LiveKit is still away");
        }
    }
}
