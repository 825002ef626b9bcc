//! How a runner is told to stop: first to take nothing new, then to hand back what it has.

use tokio::sync::watch;

/// How far a runner is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// Nothing new is taken; what runs goes on, for a while.
    Draining,
    /// What runs is ended and handed back.
    HandingBack,
}

/// The handle to stop a runner with. Clones belong together.
#[derive(Clone, Debug)]
pub struct Drain(watch::Sender<Phase>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }
}

impl Drain {
    /// Takes nothing new, and stops when what runs has ended, or after the grace of the configuration.
    pub fn begin(&self) {
        self.reach(Phase::Draining);
    }

    /// Hands back at once.
    pub fn hurry(&self) {
        self.reach(Phase::HandingBack);
    }

    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until at least this phase.
    pub(crate) async fn reached(&self, phase: Phase) {
        // The sender is this value itself, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|now| *now >= phase).await;
    }

    fn reach(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let further = phase > *now;
            *now = phase.max(*now);
            further
        });
    }
}
