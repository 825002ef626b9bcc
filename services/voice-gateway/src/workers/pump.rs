//! Delivers texts and contexts as soon as there are any, and deletes rooms that should not have been born.

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

/// Where webhooks report rooms of sessions that are over.
#[derive(Clone)]
pub(crate) struct Strays(mpsc::Sender<String>);

/// Reports that wait. One that finds no place is dropped, and the reconciler finds the room.
const REPORTS: usize = 1_024;

impl Strays {
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (reports, taken) = mpsc::channel(REPORTS);
        (Self(reports), taken)
    }

    pub(crate) fn report(&self, room: String) {
        drop(self.0.try_send(room));
    }
}

pub(crate) async fn reap(gateway: Arc<VoiceGateway>, mut rooms: mpsc::Receiver<String>, drain: Drain) {
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
