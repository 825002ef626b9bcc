//! Delivers texts and contexts as soon as there are any.

use std::sync::Arc;

use ensemble_chassis::Drain;
use ensemble_types::ids::GatewaySessionId;
use tokio::sync::{Semaphore, mpsc};

use crate::VoiceGateway;

/// Sessions that are delivered to at once, on each replica.
const AT_ONCE: usize = 64;

pub(crate) async fn pump(gateway: Arc<VoiceGateway>, mut sessions: mpsc::Receiver<GatewaySessionId>, drain: Drain) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let id = tokio::select! {
            () = drain.closing() => return,
            id = sessions.recv() => match id {
                Some(id) => id,
                None => return,
            },
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move {
            if let Err(error) = gateway.deliver(id).await {
                tracing::warn!(voice.session = %id, %error, "A delivery was interrupted; it goes on when its lease ends");
            }
            drop(place);
        });
    }
}
