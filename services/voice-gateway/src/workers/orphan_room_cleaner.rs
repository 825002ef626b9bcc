//! Deletes rooms that LiveKit has started and that have no open session. Nearly every started room is one that we have just
//! created, so the names are collected for a moment and checked with one query.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::VoiceGateway;

/// How long names are collected.
const COLLECT: Duration = Duration::from_millis(250);
/// Rooms in one query.
const BATCH: usize = 4_096;

pub(crate) async fn run(service: Arc<VoiceGateway>, mut started: mpsc::Receiver<String>, drain: Drain) {
    let mut rooms = Vec::new();
    loop {
        rooms.clear();
        tokio::select! {
            () = drain.closing() => return,
            received = started.recv_many(&mut rooms, BATCH) => if received == 0 { return },
        }
        tokio::select! {
            () = drain.closing() => {}
            () = sleep(COLLECT) => {}
        }
        while rooms.len() < BATCH
            && let Ok(room) = started.try_recv()
        {
            rooms.push(room);
        }
        if let Err(error) = service.delete_orphan_rooms(&rooms).await {
            tracing::warn!(%error, "Started rooms could not be checked; the reconciler checks them");
        }
    }
}
