//! Which failed calls are retried, when, and for how long.
//!
//! A request that had no effect may always be repeated: there was no connection, or the service refused it because of a
//! rate limit. A request that may have had its effect is repeated only when that is harmless: reads, and writes that
//! carry an idempotency key, a `localId` or a fence, or that set an absolute value.

use std::time::Duration;

use ensemble_types::problem::Code;
use rand::Rng;

use crate::error::Error;

/// How often and for how long a client retries.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The number of attempts, including the first.
    pub attempts: u32,
    /// The pause before the second attempt. It doubles after each attempt, up to `longest`.
    pub first: Duration,
    pub longest: Duration,
    /// The time budget from the start of the call to the end of its last attempt. The waiting time of a long-poll is
    /// added.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 8,
            first: Duration::from_millis(100),
            longest: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
        }
    }
}

impl Retry {
    /// One attempt, and no timeout for the whole call.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// The pause after the `failures`th failure: half of the step plus a random part of the other half, so that clients
    /// that failed together do not retry together. Never shorter than the `Retry-After` of the service.
    pub(crate) fn pause(&self, failures: u32, wanted: Option<Duration>) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let step = self.first.saturating_mul(1 << doublings).min(self.longest);
        let jittered = step.mul_f64(rand::thread_rng().gen_range(0.5..=1.0));
        match wanted {
            Some(wanted) => wanted + jittered.min(wanted / 4 + Duration::from_millis(50)),
            None => jittered,
        }
    }
}

/// The effect of sending the same request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The second request changes nothing.
    Harmless,
    /// The second request may repeat the effect.
    Harmful,
}

/// Whether a failed request may be repeated, and the pause that the service asked for.
pub(crate) fn again(error: &Error, repeat: Repeat) -> Option<Option<Duration>> {
    let harmless = repeat == Repeat::Harmless;
    match error {
        Error::Unreachable { .. } => Some(None),
        Error::ConnectionLost { .. } | Error::TimedOut { .. } if harmless => Some(None),
        Error::ForeignServer { status, .. } if harmless && *status >= 500 => Some(None),
        Error::Problem(problem) => {
            let wanted = problem.retry_after.map(|seconds| Duration::from_secs(u64::from(seconds)));
            let may = match problem.code {
                Code::RateLimited => true,
                Code::Unavailable | Code::UpstreamError | Code::UpstreamTimeout | Code::RequestTimeout => harmless,
                // The first request with this idempotency key is still in progress.
                Code::Conflict => harmless && wanted.is_some(),
                _ => false,
            };
            may.then_some(wanted)
        }
        _ => None,
    }
}

/// Whether the request may have had its effect although the call failed.
pub(crate) fn ambiguous(error: &Error) -> bool {
    match error {
        Error::ConnectionLost { .. } | Error::TimedOut { .. } => true,
        Error::ForeignServer { status, .. } => *status >= 500,
        Error::Problem(problem) => problem.code.status() >= 500 || problem.code == Code::RequestTimeout,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::problem::Problem;

    #[test]
    fn pauses_grow_are_bounded_and_respect_the_service() {
        let retry = Retry::default();
        for failures in 1..40 {
            let pause = retry.pause(failures, None);
            assert!(pause >= retry.first / 2 && pause <= retry.longest, "{pause:?}");
        }
        let wanted = Duration::from_secs(7);
        assert!(retry.pause(1, Some(wanted)) >= wanted);
    }

    #[test]
    fn only_harmless_requests_are_repeated_after_they_may_have_arrived() {
        let unavailable = Error::from(Problem::new(Code::Unavailable, ""));
        assert!(again(&unavailable, Repeat::Harmless).is_some());
        assert!(again(&unavailable, Repeat::Harmful).is_none());
        let limited = Error::from(Problem::new(Code::RateLimited, "").with_retry_after(3));
        assert_eq!(again(&limited, Repeat::Harmful), Some(Some(Duration::from_secs(3))));
        for code in [Code::Forbidden, Code::QuotaExceeded] {
            assert!(again(&Error::from(Problem::new(code, "")), Repeat::Harmless).is_none(), "{code:?}");
        }
    }
}
