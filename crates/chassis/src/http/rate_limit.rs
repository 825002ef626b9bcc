//! What is left of a limit, in the fields of an answer (RateLimit header fields for HTTP, draft 11) and in the words of a refusal.

use std::time::Duration;

use actix_web::HttpMessage;
use ensemble_types::problem::{Code, Problem};

const MINUTE: Duration = Duration::from_secs(60);
/// When a client that has too much open may look again. It ends something itself, and knows when.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What a limit left of a caller's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The name of the limit.
    pub policy: &'static str,
    pub most: u32,
    /// A minute or an hour. `None`: it bounds what is open at the same time.
    pub window: Option<Duration>,
    pub left: u32,
    /// What is counted, in the plural.
    pub counted: &'static str,
    /// Set when there is nothing left: how long until there is.
    pub refused_for: Option<Duration>,
}

impl RateLimit {
    /// Of what one client may have open at the same time, when it has all of it.
    pub fn all_open(policy: &'static str, most: usize, counted: &'static str) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        Self { policy, most, window: None, left: 0, counted, refused_for: Some(LOOK_AGAIN) }
    }

    /// `"account";r=599;t=1`: what is left, and the seconds until all of it is there again.
    pub fn rate_limit(&self) -> String {
        let Self { policy, left, most, .. } = self;
        let Some(window) = self.window else { return format!("\"{policy}\";r={left}") };
        let spent = u64::from(most.saturating_sub(*left));
        let refill = (spent * window.as_secs()).div_ceil(u64::from(*most).max(1));
        format!("\"{policy}\";r={left};t={refill}")
    }

    /// `"account";q=600;w=60`
    pub fn policy(&self) -> String {
        let Self { policy, most, .. } = self;
        match self.window {
            Some(window) => format!("\"{policy}\";q={most};w={}", window.as_secs()),
            None => format!("\"{policy}\";q={most};qu=\"concurrent-requests\""),
        }
    }

    /// The refusal of a request. The fields of its answer name this limit.
    pub fn refuse(self, request: &impl HttpMessage) -> Problem {
        request.extensions_mut().insert(self);
        self.problem()
    }

    /// What was counted, and when the refusal ends.
    pub fn problem(&self) -> Problem {
        let Self { most, counted, .. } = self;
        let wait = self.refused_for.unwrap_or_default();
        let seconds = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1);
        let detail = match self.window {
            Some(window) => {
                let per = if window == MINUTE { "a minute" } else { "an hour" };
                format!("At most {most} {counted} are allowed in {per}. The next one is allowed in {seconds} s.")
            }
            None => format!("At most {most} {counted} may be open at the same time. End one of them first."),
        };
        Problem::new(Code::RateLimited, detail).with_retry_after(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_the_open_ones_has_no_time() {
        let streams = RateLimit::all_open("streams", 7, "streams of one caller");
        assert_eq!(streams.policy(), "\"streams\";q=7;qu=\"concurrent-requests\"");
        assert_eq!(streams.rate_limit(), "\"streams\";r=0");
        let problem = streams.problem();
        assert_eq!(problem.retry_after, Some(5));
        assert_eq!(
            problem.detail,
            "At most 7 streams of one caller may be open at the same time. End one of them first."
        );
    }

    #[test]
    fn what_bounds_a_time_says_when_it_ends() {
        let wait = Some(Duration::from_millis(359_100));
        let window = Some(Duration::from_secs(3600));
        let accounts =
            RateLimit { policy: "accounts", most: 10, window, left: 0, counted: "new accounts", refused_for: wait };
        assert_eq!(accounts.policy(), "\"accounts\";q=10;w=3600");
        assert_eq!(accounts.rate_limit(), "\"accounts\";r=0;t=3600");
        let problem = accounts.problem();
        assert_eq!(problem.retry_after, Some(360));
        assert_eq!(problem.detail, "At most 10 new accounts are allowed in an hour. The next one is allowed in 360 s.");
    }
}
