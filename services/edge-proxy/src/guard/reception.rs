//! A body on its way in, with a clock that runs only while the client is waited for.

use std::time::Duration;

use tokio::time::Instant;

use super::limits::Limits;
use crate::domain::body_scanner::BodyScanner;
use crate::domain::refusal::Refusal;

pub(super) struct Reception {
    scanner: BodyScanner,
    received: u64,
    /// Time spent waiting for the client; time in which the services did not read does not count.
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Reception {
    pub(super) fn new(scanner: BodyScanner) -> Self {
        Self { scanner, received: 0, waited: Duration::ZERO, waiting_since: None }
    }

    /// Looks at what came: how many of the bytes belong to the body, and whether it is over.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        let (len, is_over) = self.scanner.scan(bytes)?;
        self.received += len as u64;
        Ok((len, is_over))
    }

    /// Something came.
    pub(super) fn stop_waiting(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
    }

    /// Nothing came: until when to wait. Every byte earns its time at the least rate.
    pub(super) fn wait(&mut self, limits: &Limits) -> Instant {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let earned = Duration::from_millis(self.received.saturating_mul(1000) / limits.body_min_rate.max(1));
        let allowed = (limits.body_timeout + earned).min(limits.body_deadline);
        since + allowed.saturating_sub(self.waited)
    }
}
