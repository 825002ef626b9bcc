//! Stops a program that hosts sessions or does tasks, in two steps: first it takes no new work, then it ends or hands back what it has.

use tokio::sync::watch;

/// How far it has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// It takes no new work; what runs continues for a while.
    Draining,
    /// What runs is ended or handed back.
    HandingBack,
}

/// A handle that stops the program. Clones share their state.
#[derive(Clone, Debug)]
pub struct Drain(watch::Sender<Phase>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }
}

impl Drain {
    /// Takes no new work. The program stops when what runs has ended, or after the configured grace period.
    pub fn begin(&self) {
        self.reach(Phase::Draining);
    }

    /// Ends or hands back everything at once.
    pub fn hurry(&self) {
        self.reach(Phase::HandingBack);
    }

    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until the phase is at least `phase`.
    pub async fn reached(&self, phase: Phase) {
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
