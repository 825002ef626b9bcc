//! How often a failed task is retried, and after which pause.

use std::time::Duration;

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Retry {
    /// The first attempt included.
    pub(crate) max_attempts: i32,
    pub(crate) backoff: Duration,
    /// Each pause is the pause before it times this factor.
    pub(crate) factor: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Duration::ZERO, factor: 2.0 }
    }
}

impl Retry {
    /// The pause after this many failures. `None` when no attempt is left.
    pub(crate) fn pause_after(&self, failures: i32) -> Option<Duration> {
        if failures >= self.max_attempts {
            return None;
        }
        let seconds = self.backoff.as_secs_f64() * self.factor.powi(failures.max(1) - 1);
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_PAUSE).min(MAX_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_day_until_no_attempt_is_left() {
        let retry = Retry { max_attempts: 10, backoff: Duration::from_secs(3_600), factor: 10.0 };
        assert_eq!(retry.pause_after(1), Some(Duration::from_secs(3_600)));
        assert_eq!(retry.pause_after(2), Some(Duration::from_secs(36_000)));
        assert_eq!(retry.pause_after(3), Some(Duration::from_secs(86_400)));
        assert_eq!(retry.pause_after(9), Some(Duration::from_secs(86_400)));
        assert_eq!(retry.pause_after(10), None);
        assert_eq!(Retry::default().pause_after(1), None);
    }
}
