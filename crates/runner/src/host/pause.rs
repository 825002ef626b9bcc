//! Growing pauses while the server cannot be reached, and one line in the log when they begin.

use std::time::Duration;

use ensemble_client::Error;
use ensemble_types::ids::SessionId;

use super::Host;
use crate::backoff::Backoff;
use crate::config::Timing;
use crate::server::ServerError;

pub(crate) struct Pause {
    backoff: Backoff,
    has_said: bool,
    error: ServerError,
}

impl Pause {
    pub(crate) fn new(host: &Host) -> Self {
        Self::of(&host.config.timing)
    }

    pub(crate) fn of(timing: &Timing) -> Self {
        let error = ServerError::Unavailable { reason: String::new(), retry_after: None };
        Self { backoff: Backoff::of(timing), has_said: false, error }
    }

    /// After a success.
    pub(crate) fn reset(&mut self) {
        self.backoff.reset();
        self.has_said = false;
    }

    /// Logs why something waits, once until the next success.
    pub(crate) fn say(&mut self, what: &str) {
        if !std::mem::replace(&mut self.has_said, true) {
            tracing::warn!("{what}");
        }
    }

    pub(crate) fn note(&mut self, session: SessionId, what: &str, error: &Error) {
        self.error = match error {
            Error::Problem(problem) => ServerError::Unavailable {
                reason: String::new(),
                retry_after: problem.retry_after.map(|seconds| Duration::from_secs(u64::from(seconds))),
            },
            _ => ServerError::Unavailable { reason: String::new(), retry_after: None },
        };
        self.say(&format!("Session {session}: {what}: {error}"));
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.backoff.pause(&self.error)
    }

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}
