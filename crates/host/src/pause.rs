//! Growing pauses while the server cannot be reached, and one line in the log when they begin.

use std::time::Duration;

use ensemble_client::Error;
use ensemble_types::ids::SessionId;
use tokio::time::Instant;

use super::Host;
use crate::backoff::Backoff;

/// How long a person waits at most until a call that fails is given up.
const REPEATED_FOR: Duration = Duration::from_secs(10);

/// Repeats a harmless call while the server is unreachable or busy, for ten seconds at most.
///
/// # Errors
/// The last one.
pub(super) async fn repeated<T, C>(backoff: Backoff, call: impl Fn() -> C) -> Result<T, Error>
where
    C: Future<Output = Result<T, Error>>,
{
    let deadline = Instant::now() + REPEATED_FOR;
    let mut pause = Pause::of(backoff);
    loop {
        let answer = call().await;
        let Err(error) = &answer else { return answer };
        pause.retry_after = retry_after(error);
        let again = Instant::now() + pause.next();
        if !error.is_passing() || again > deadline {
            return answer;
        }
        tokio::time::sleep_until(again).await;
    }
}

/// How long the server wants this program to wait.
fn retry_after(error: &Error) -> Option<Duration> {
    match error {
        Error::Problem(problem) => problem.retry_after.map(|seconds| Duration::from_secs(u64::from(seconds))),
        _ => None,
    }
}

pub struct Pause {
    backoff: Backoff,
    has_said: bool,
    retry_after: Option<Duration>,
}

impl Pause {
    pub(crate) fn new(host: &Host) -> Self {
        Self::of(host.settings.timing.backoff)
    }

    pub fn of(backoff: Backoff) -> Self {
        Self { backoff, has_said: false, retry_after: None }
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
        self.has_said = false;
    }

    /// Logs why something waits, once until the next success.
    pub fn say(&mut self, what: &str) {
        if !std::mem::replace(&mut self.has_said, true) {
            tracing::warn!("{what}");
        }
    }

    pub(crate) fn note(&mut self, session: SessionId, what: &str, error: &Error) {
        self.retry_after = retry_after(error);
        self.say(&format!("Session {session}: {what}: {error}"));
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.backoff.pause(self.retry_after)
    }

    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ensemble_types::problem::{Code, Problem};

    use super::*;

    fn unavailable() -> Error {
        Error::from(Problem::new(Code::Unavailable, ""))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_repeated_until_it_is_answered() {
        let calls = Cell::new(0);
        let answer = repeated(Backoff::default(), || {
            calls.set(calls.get() + 1);
            let answer = if calls.get() < 4 { Err(unavailable()) } else { Ok(calls.get()) };
            std::future::ready(answer)
        });
        assert_eq!(answer.await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_given_up_after_ten_seconds_and_a_refused_one_at_once() {
        let begun = Instant::now();
        let answer = repeated(Backoff::default(), async || Err::<(), _>(unavailable())).await;
        assert!(answer.unwrap_err().is(Code::Unavailable));
        assert!(begun.elapsed() > REPEATED_FOR / 4 && begun.elapsed() <= REPEATED_FOR, "{:?}", begun.elapsed());

        let begun = Instant::now();
        let refused = repeated(Backoff::default(), async || Err::<(), _>(Problem::new(Code::Forbidden, "").into()));
        assert!(refused.await.unwrap_err().is(Code::Forbidden));
        let busy = Problem::new(Code::RateLimited, "").with_retry_after(60);
        let limited = repeated(Backoff::default(), async || Err::<(), _>(busy.clone().into()));
        assert!(limited.await.unwrap_err().is(Code::RateLimited));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
