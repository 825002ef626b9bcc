//! Stops a runner in two steps: first it takes no new work, then it hands back its attempts.

use tokio::sync::watch;

/// The phase of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// The runner takes no new work; running attempts continue for a while.
    Draining,
    /// Running attempts are ended and handed back.
    HandingBack,
}

/// A handle that stops a runner. Clones share their state.
#[derive(Clone, Debug)]
pub struct Drain(watch::Sender<Phase>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }
}

impl Drain {
    /// Takes no new work. The runner stops when its attempts have ended, or after the configured grace period.
    pub fn begin(&self) {
        self.reach(Phase::Draining);
    }

    /// Hands back all attempts at once.
    pub fn hurry(&self) {
        self.reach(Phase::HandingBack);
    }

    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until the phase is at least `phase`.
    pub(crate) async fn reached(&self, phase: Phase) {
        // `self` owns the sender, so the channel is open.
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
