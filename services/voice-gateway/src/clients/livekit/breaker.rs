//! A circuit breaker for LiveKit. After consecutive failures calls are refused at once. Only the prober finds out whether
//! LiveKit is back, so no request is used as a probe.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Breaker {
    failures: Mutex<u32>,
    threshold: u32,
    /// The interval of probes, and the `Retry-After` of refused calls.
    probe_every: Duration,
    open: watch::Sender<bool>,
}

impl Breaker {
    pub(crate) fn new(threshold: u32, probe_every: Duration) -> Self {
        Self { failures: Mutex::new(0), threshold: threshold.max(1), probe_every, open: watch::Sender::new(false) }
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    pub(crate) fn probe_every(&self) -> Duration {
        self.probe_every
    }

    /// Completes when the breaker is open.
    pub(crate) async fn opened(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }

    pub(super) fn succeeded(&self) {
        self.count(|_| 0);
    }

    pub(super) fn failed(&self) {
        self.count(|failures| failures.saturating_add(1));
    }

    fn count(&self, change: impl FnOnce(u32) -> u32) {
        let Ok(mut failures) = self.failures.lock() else { return };
        *failures = change(*failures);
        let open = *failures >= self.threshold;
        self.open.send_if_modified(|was| {
            let changed = *was != open;
            if changed && open {
                tracing::warn!("LiveKit is unavailable; refusing calls until it answers a probe");
            } else if changed {
                tracing::info!("LiveKit is available again");
            }
            *was = open;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_consecutive_failures_and_closes_with_one_success() {
        let breaker = Breaker::new(3, Duration::from_secs(1));
        breaker.failed();
        breaker.failed();
        breaker.succeeded();
        breaker.failed();
        breaker.failed();
        assert!(!breaker.is_open());
        breaker.failed();
        assert!(breaker.is_open());
        breaker.succeeded();
        assert!(!breaker.is_open());
    }
}
