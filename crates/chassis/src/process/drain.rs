//! Signals to handlers and loops that the process is about to stop.

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    /// Readiness fails and answers say `Connection: close`; everything is still served.
    Draining,
    /// Long-polls answer, streams end, loops end.
    Closing,
}

/// Shows whether the process is about to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain {
    stage: watch::Receiver<Stage>,
}

impl Drain {
    pub(super) fn new() -> (watch::Sender<Stage>, Self) {
        let (sender, stage) = watch::channel(Stage::Serving);
        (sender, Self { stage })
    }

    /// A drain that never begins, for tools and tests.
    pub fn never() -> Self {
        let (sender, drain) = Self::new();
        std::mem::forget(sender);
        drain
    }

    /// Whether load balancers should send no more requests.
    pub fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    pub fn is_closing(&self) -> bool {
        *self.stage.borrow() >= Stage::Closing
    }

    /// Completes when long-polls should answer and streams should end.
    pub async fn closing(&self) {
        let mut stage = self.stage.clone();
        // An error means that the sender was dropped because the process ends; that also ends the wait.
        let _ = stage.wait_for(|stage| *stage >= Stage::Closing).await;
    }
}
