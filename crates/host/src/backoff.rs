//! Growing pauses between retries, with a limit and with jitter.

use std::time::Duration;

use rand::Rng;

/// The pauses of one series of retries.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(5))
    }
}

impl Backoff {
    /// The first and the longest pause.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// After a success: the next series begins with a short pause.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// The pause after a failure: between half the step and the step, and never shorter than the server's
    /// `Retry-After`.
    pub fn pause(&mut self, retry_after: Option<Duration>) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.longest);
        let jittered = step.mul_f64(rand::thread_rng().gen_range(0.5..=1.0));
        retry_after.map_or(jittered, |wanted| wanted + jittered.min(wanted / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_start_again() {
        let mut backoff = Backoff::default();
        let Backoff { first, longest, .. } = backoff;
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.pause(None)).collect();
        assert!(pauses.iter().all(|pause| *pause <= longest));
        assert!(pauses[11] >= longest / 2 && pauses[0] <= first);
        backoff.reset();
        assert!(backoff.pause(None) <= first);
    }
}
