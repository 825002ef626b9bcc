//! Signals to the guard itself. Each of them ends the attempt.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the attempt.
pub(super) struct Ending([Signal; 4]);

impl Ending {
    pub(super) fn new() -> io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let [terminate, interrupt, hangup, quit] = kinds.map(signal);
        Ok(Self([terminate?, interrupt?, hangup?, quit?]))
    }

    /// Waits for one of them. Cancel safe.
    pub(super) async fn received(&mut self) {
        let [terminate, interrupt, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}
