//! How long a caller waits for the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The end of a caller's wait, shared with its job. A job that is about to wait itself may move it.
#[derive(Clone)]
pub(crate) struct Deadline {
    start: Instant,
    limit: Arc<Limit>,
}

struct Limit {
    /// Milliseconds after the start.
    ms: AtomicU64,
    /// The caller has its answer, and nothing can change it.
    is_over: AtomicBool,
    changed: Notify,
}

impl Deadline {
    pub(crate) fn new(start: Instant, limit: Duration) -> Self {
        let ms = AtomicU64::new(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        let limit = Limit { ms, is_over: AtomicBool::new(false), changed: Notify::new() };
        Self { start, limit: Arc::new(limit) }
    }

    pub(crate) fn start(&self) -> Instant {
        self.start
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

    fn end(&self) -> Instant {
        self.start + Duration::from_millis(self.limit.ms.load(Ordering::SeqCst))
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.limit.is_over.load(Ordering::SeqCst) || Instant::now() >= self.end()
    }

    /// Completes when the deadline has passed, also when it is moved meanwhile. Afterwards it cannot be moved.
    pub(crate) async fn passed(&self) {
        while !self.has_passed() {
            let _ = timeout_at(self.end(), self.limit.changed.notified()).await;
        }
        self.limit.is_over.store(true, Ordering::SeqCst);
    }
}

/// The deadlines of all callers of one job: of none, of one, or of each job in a batch.
#[derive(Clone, Default)]
pub(crate) struct Deadlines(Arc<[Deadline]>);

impl Deadlines {
    pub(crate) fn one(deadline: Deadline) -> Self {
        Self(Arc::new([deadline]))
    }

    pub(crate) fn extend(&self, by: Duration) {
        self.0.iter().for_each(|deadline| deadline.extend(by));
    }

    pub(crate) fn shorten(&self, by: Duration) {
        self.0.iter().for_each(|deadline| deadline.shorten(by));
    }

    /// Every caller has stopped waiting.
    pub(crate) fn have_passed(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(Deadline::has_passed)
    }
}

impl FromIterator<Deadline> for Deadlines {
    fn from_iter<I: IntoIterator<Item = Deadline>>(deadlines: I) -> Self {
        Self(deadlines.into_iter().collect())
    }
}
