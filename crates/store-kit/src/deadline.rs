//! How long a caller waits for the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Until when a caller waits; a job that is about to wait may put it off.
#[derive(Clone)]
pub(crate) struct Deadline {
    start: Instant,
    limit: Arc<Limit>,
}

struct Limit {
    /// After the start.
    ms: AtomicU64,
    changed: Notify,
}

impl Deadline {
    pub(crate) fn new(limit: Duration) -> Self {
        let ms = AtomicU64::new(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        Self { start: Instant::now(), limit: Arc::new(Limit { ms, changed: Notify::new() }) }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn extend(&self, by: Duration) {
        self.limit.ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::SeqCst);
        self.limit.changed.notify_one();
    }

    pub(crate) fn shorten(&self, by: Duration) {
        self.limit.ms.fetch_sub(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::SeqCst);
        self.limit.changed.notify_one();
    }

    fn deadline(&self) -> Instant {
        self.start + Duration::from_millis(self.limit.ms.load(Ordering::SeqCst))
    }

    /// Completes when it is at its end, wherever that has moved meanwhile.
    pub(crate) async fn over(&self) {
        while self.lasts() {
            let _ = timeout_at(self.deadline(), self.limit.changed.notified()).await;
        }
    }

    pub(crate) fn lasts(&self) -> bool {
        Instant::now() < self.deadline()
    }
}
