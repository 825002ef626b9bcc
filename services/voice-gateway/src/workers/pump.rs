//! Delivers texts and contexts as soon as there are any, and deletes rooms that should not have been born.

use std::sync::Arc;

use ensemble_chassis::Drain;
use ensemble_types::ids::GatewaySessionId;
use tokio::sync::{Semaphore, mpsc};

use crate::VoiceGateway;

/// Sessions that are delivered to at once, on each replica.
const AT_ONCE: usize = 64;

pub(crate) async fn pump(
    gateway: Arc<VoiceGateway>,
    mut sessions: mpsc::UnboundedReceiver<GatewaySessionId>,
    drain: Drain,
) {
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

/// Where webhooks report rooms of sessions that are over.
#[derive(Clone)]
pub(crate) struct Strays(mpsc::UnboundedSender<String>);

impl Strays {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<String>) {
        let (reports, taken) = mpsc::unbounded_channel();
        (Self(reports), taken)
    }

    pub(crate) fn report(&self, room: String) {
        // The receiver is gone only when the process ends.
        drop(self.0.send(room));
    }
}

pub(crate) async fn reap(gateway: Arc<VoiceGateway>, mut rooms: mpsc::UnboundedReceiver<String>, drain: Drain) {
    loop {
        let room = tokio::select! {
            () = drain.closing() => return,
            room = rooms.recv() => match room {
                Some(room) => room,
                None => return,
            },
        };
        match gateway.livekit.delete_room(&room).await {
            Ok(()) => tracing::info!(room, "Deleted a room that came back after its session"),
            Err(error) => {
                tracing::debug!(room, %error, "A room that came back could not be deleted; the reconciler will")
            }
        }
    }
}
