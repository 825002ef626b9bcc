//! What ends `ensemble up`.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::context::hang_ups;
use crate::failure::{Failure, Result};

pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::message(format!("Cannot listen for signals: {error}.")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: hang_ups()?,
        })
    }

    pub(super) async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hung_up => {}
        }
    }
}
