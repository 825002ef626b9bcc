//! How often a failed task is tried again, and how long after.

use std::time::Duration;

/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Retry {
    /// The first attempt included.
    pub(crate) max_attempts: i32,
    pub(crate) backoff: Duration,
    /// Each pause is so many times as long as the one before.
    pub(crate) factor: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Duration::ZERO, factor: 2.0 }
    }
}

impl Retry {
    /// The pause after so many failures; nothing when there is no other attempt.
    pub(crate) fn pause_after(&self, failures: i32) -> Option<Duration> {
        if failures >= self.max_attempts {
            return None;
        }
        let seconds = self.backoff.as_secs_f64() * self.factor.powi(failures.max(1) - 1);
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_day_and_end_with_the_attempts() {
        let retry = Retry { max_attempts: 10, backoff: Duration::from_secs(3_600), factor: 10.0 };
        assert_eq!(retry.pause_after(1), Some(Duration::from_secs(3_600)));
        assert_eq!(retry.pause_after(2), Some(Duration::from_secs(36_000)));
        assert_eq!(retry.pause_after(9), Some(LONGEST));
        assert_eq!(retry.pause_after(10), None);
        assert_eq!(Retry::default().pause_after(1), None);
    }
}
