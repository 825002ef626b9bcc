//! Whether the database answers, from what its jobs saw last.
//!
//! A request that waits for a database that is away holds up those behind it that wait for their turn. Once it is known
//! that the database is away, callers therefore wait for a moment only. Their jobs go on connecting, so that the first one
//! that is answered ends this.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) struct Reach {
    timeout: Duration,
    /// While the database is known to be away.
    timeout_away: Duration,
    opened: Instant,
    /// Microseconds after `opened`.
    last_answer: AtomicU64,
    is_away: AtomicBool,
}

impl Reach {
    /// How long callers wait, and how long they do while the database is known to be away.
    pub(crate) fn new(timeout: Duration, timeout_away: Duration) -> Self {
        let (last_answer, is_away) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { timeout, timeout_away, opened: Instant::now(), last_answer, is_away }
    }

    /// How long a caller that comes now waits: `usual` at most.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        if self.is_away.load(Ordering::SeqCst) { usual.min(self.timeout_away) } else { usual }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.limit(self.timeout)
    }

    pub(crate) fn answered(&self) {
        self.last_answer.store(self.now(), Ordering::SeqCst);
        self.is_away.store(false, Ordering::SeqCst);
    }

    /// No connection could be made.
    pub(crate) fn unreachable(&self) {
        self.is_away.store(true, Ordering::SeqCst);
    }

    /// A job got no answer for this long. One slow statement is no sign, as long as others are answered.
    pub(crate) fn silent_for(&self, waited: Duration) {
        if waited >= self.timeout && self.now() - self.last_answer.load(Ordering::SeqCst) >= micros(waited) {
            self.is_away.store(true, Ordering::SeqCst);
        }
    }

    fn now(&self) -> u64 {
        micros(self.opened.elapsed())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
