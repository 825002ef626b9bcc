//! How many requests an account may still send, as the server's answers say (RateLimit header fields for HTTP, draft 11).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;

/// No server makes a program wait longer at a time.
const LONGEST: Duration = Duration::from_secs(15);

/// The requests of an account, which its programs share.
#[derive(Debug, Default)]
pub(crate) struct Quota(Mutex<Option<Left>>);

#[derive(Clone, Copy, Debug)]
struct Left {
    read_at: Instant,
    /// The time in which a quota that is spent comes back.
    window: Duration,
    /// How long until all of it is there again.
    missing: Duration,
}

impl Quota {
    /// Takes what an answer says. One that was counted by another limit says nothing.
    pub(crate) fn measure(&self, headers: &HeaderMap) {
        let seconds = |field: &str, parameter: &str| {
            let of_account = headers.get(field)?.to_str().ok()?.strip_prefix("\"account\";")?;
            let value = of_account.split(';').find_map(|part| part.strip_prefix(parameter))?;
            value.parse().ok().map(Duration::from_secs)
        };
        if let (Some(missing), Some(window)) = (seconds("ratelimit", "t="), seconds("ratelimit-policy", "w=")) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Left { read_at: Instant::now(), window, missing });
        }
    }

    /// How long until a quarter of the quota is there.
    pub(crate) fn wait(&self) -> Duration {
        let Some(left) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return Duration::ZERO };
        let missing = left.missing.saturating_sub(left.read_at.elapsed());
        missing.saturating_sub(left.window / 4 * 3).min(left.window / 4).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderName;

    use super::*;

    fn wait(left: &'static str, policy: &'static str) -> u64 {
        let quota = Quota::default();
        let fields = [("ratelimit", left), ("ratelimit-policy", policy)];
        let headers = fields.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        quota.measure(&HeaderMap::from_iter(headers));
        quota.wait().as_secs_f64().ceil() as u64
    }

    #[test]
    fn a_quarter_of_the_quota_is_left_to_other_programs() {
        assert_eq!(wait("\"account\";r=600;t=0", "\"account\";q=600;w=60"), 0);
        assert_eq!(wait("\"account\";r=150;t=45", "\"account\";q=600;w=60"), 0);
        assert_eq!(wait("\"account\";r=50;t=55", "\"account\";q=600;w=60"), 10);
        assert_eq!(wait("\"account\";r=0;t=60", "\"account\";q=600;w=60"), 15);
    }

    #[test]
    fn what_does_not_speak_of_the_account_means_no_wait() {
        assert_eq!(wait("\"sign-in\";r=0;t=60", "\"sign-in\";q=60;w=60"), 0);
        assert_eq!(wait("\"account\";r=0", "\"account\";q=7;qu=\"concurrent-requests\""), 0);
        assert_eq!(wait("", "x"), 0);
        assert_eq!(wait("\"account\";r=0;t=-1", "\"account\";q=600;w=60"), 0);
    }

    #[test]
    fn no_server_makes_a_program_wait_for_long() {
        assert_eq!(wait("\"account\";r=0;t=18446744073709551615", "\"account\";q=1;w=1"), 1);
        assert_eq!(wait("\"account\";r=0;t=18446744073709551615", "\"account\";q=1;w=18446744073709551615"), 15);
    }
}
