//! Whether the database answers, from what its users saw last.
//!
//! A request that waits for a database that is down holds up those of its caller that wait for their turn. Once it is known
//! that the database is down, callers therefore wait for a moment only. Connecting continues in the background, and the first
//! connection ends this state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Reach {
    timeout: Duration,
    timeout_away: Duration,
    opened: Instant,
    /// Microseconds after `opened`: when the database answered last.
    answered: AtomicU64,
    /// Microseconds after `opened`: when the last wait began that got no answer.
    unanswered: AtomicU64,
}

impl Reach {
    /// How long callers wait, and how long they do while the database is known to be away.
    pub(crate) fn new(timeout: Duration, timeout_away: Duration) -> Self {
        let (answered, unanswered) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { timeout, timeout_away, opened: Instant::now(), answered, unanswered }
    }

    /// How long anybody waits.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long a caller waits that comes now: `usual` at most.
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        if self.is_away() { usual.min(self.timeout_away) } else { usual }
    }

    pub(crate) fn answered(&self) {
        self.answered_at(Instant::now());
    }

    fn answered_at(&self, moment: Instant) {
        let was_away = self.is_away();
        self.answered.fetch_max(self.at(moment), Ordering::SeqCst);
        if was_away {
            tracing::info!("The database answers again");
        }
    }

    /// A wait that began then got no answer. While others are answered, this is no sign: it may be one slow statement, or a
    /// server that has no more connections.
    pub(crate) fn unanswered_since(&self, begun: Instant) {
        let was_away = self.is_away();
        self.unanswered.fetch_max(self.at(begun), Ordering::SeqCst);
        if !was_away && self.is_away() {
            tracing::warn!("The database does not answer");
        }
    }

    fn is_away(&self) -> bool {
        self.unanswered.load(Ordering::SeqCst) > self.answered.load(Ordering::SeqCst)
    }

    fn at(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.opened).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(2);
    const AWAY: Duration = Duration::from_millis(100);

    #[test]
    fn only_a_wait_without_any_answer_is_a_sign() {
        let reach = Reach::new(USUAL, AWAY);
        let second = |count| reach.opened + Duration::from_secs(count);
        reach.answered_at(second(2));
        reach.unanswered_since(second(1));
        assert_eq!(reach.limit(USUAL), USUAL, "another was answered meanwhile");
        reach.unanswered_since(second(3));
        assert_eq!(reach.limit(USUAL), AWAY);
        assert_eq!(reach.limit(Duration::ZERO), Duration::ZERO);
        reach.unanswered_since(second(1));
        assert_eq!(reach.limit(USUAL), AWAY, "an older one ends later");
        reach.answered_at(second(4));
        assert_eq!(reach.limit(USUAL), USUAL);
    }
}
