//! Growing pauses between retries, with a limit and with jitter.

use std::time::Duration;

use rand::Rng;

use crate::config::Timing;
use crate::server::ServerError;

/// The pauses of one series of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn of(timing: &Timing) -> Self {
        Self { first: timing.backoff_first, longest: timing.backoff_longest, next: timing.backoff_first }
    }

    /// After a success: the next series begins with a short pause.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The pause after a failure: between half the step and the step, and never shorter than the server's
    /// `Retry-After`.
    pub(crate) fn pause(&mut self, error: &ServerError) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.longest);
        let jittered = step.mul_f64(rand::thread_rng().gen_range(0.5..=1.0));
        match error {
            ServerError::Unavailable { retry_after: Some(wanted), .. } => *wanted + jittered.min(*wanted / 4),
            _ => jittered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_start_again() {
        let timing = Timing::default();
        let mut backoff = Backoff::of(&timing);
        let away = ServerError::Unavailable { reason: String::new(), retry_after: None };
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.pause(&away)).collect();
        assert!(pauses.iter().all(|pause| *pause <= timing.backoff_longest));
        assert!(pauses[11] >= timing.backoff_longest / 2 && pauses[0] <= timing.backoff_first);
        backoff.reset();
        assert!(backoff.pause(&away) <= timing.backoff_first);
    }
}
