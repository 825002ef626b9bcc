//! Delivers texts and contexts as soon as there are any.

use std::sync::Arc;

use ensemble_chassis::Drain;
use ensemble_types::ids::GatewaySessionId;
use tokio::sync::{Semaphore, mpsc};

use crate::VoiceGateway;

/// Concurrent deliveries of each replica, each to another session.
const AT_ONCE: usize = 64;

pub(crate) async fn run(service: Arc<VoiceGateway>, mut sessions: mpsc::Receiver<GatewaySessionId>, drain: Drain) {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let id = tokio::select! {
            () = drain.closing() => return,
            id = sessions.recv() => match id {
                Some(id) => id,
                None => return,
            },
        };
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            if let Err(error) = service.deliver(id).await {
                tracing::warn!(voice.session = %id, %error, "A delivery was interrupted; it continues when its lease ends");
            }
            drop(permit);
        });
    }
}
