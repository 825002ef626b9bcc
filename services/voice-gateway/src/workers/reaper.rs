//! Deletes rooms that should not have been born. Nearly every birth is that of a room that we have just made, so births are
//! gathered for a moment and looked at together.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::VoiceGateway;

/// Where births of rooms are reported.
#[derive(Clone)]
pub(crate) struct Births(mpsc::Sender<String>);

/// Births that wait. One that finds no place is dropped, and the reconciler looks at its room.
const REPORTS: usize = 4_096;
/// How long births are gathered.
const GATHER: Duration = Duration::from_millis(250);

impl Births {
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (reports, taken) = mpsc::channel(REPORTS);
        (Self(reports), taken)
    }

    pub(crate) fn report(&self, room: String) {
        drop(self.0.try_send(room));
    }
}

pub(crate) async fn reap(gateway: Arc<VoiceGateway>, mut births: mpsc::Receiver<String>, drain: Drain) {
    let mut rooms = Vec::new();
    loop {
        rooms.clear();
        tokio::select! {
            () = drain.closing() => return,
            taken = births.recv_many(&mut rooms, REPORTS) => if taken == 0 { return },
        }
        tokio::select! {
            () = drain.closing() => {}
            () = sleep(GATHER) => {}
        }
        while let Ok(room) = births.try_recv() {
            rooms.push(room);
        }
        if let Err(error) = gateway.delete_strays(&rooms).await {
            tracing::warn!(%error, "Rooms that were born could not be looked at; the reconciler will");
        }
    }
}
