//! The attempts of one call: a bearer token and a timeout for each, and whether there is another one after a failure.

use std::time::Duration;

use ensemble_types::problem::Code;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::retry::{self, Repeat};
use crate::transport::Client;

/// The attempts of one call, within its time budget.
pub(crate) struct Attempts<'c> {
    client: &'c Client,
    repeat: Repeat,
    signed: bool,
    /// How long the service was asked to hold the request open.
    wait: Duration,
    deadline: Instant,
    failures: u32,
    renewed: bool,
    may_have_happened: bool,
}

/// What one attempt needs.
pub(crate) struct Attempt {
    pub(crate) bearer: Option<SecretString>,
    pub(crate) timeout: Duration,
}

impl<'c> Attempts<'c> {
    pub(crate) fn new(client: &'c Client, repeat: Repeat, signed: bool, wait: Duration) -> Self {
        let deadline = Instant::now() + client.0.retry.deadline + wait;
        Self { client, repeat, signed, wait, deadline, failures: 0, renewed: false, may_have_happened: false }
    }

    /// Prepares the next attempt. Signs in when that is needed.
    pub(crate) async fn begin(&self) -> Result<Attempt> {
        let bearer = if self.signed { self.client.bearer().await? } else { None };
        let left = self.deadline.saturating_duration_since(Instant::now());
        Ok(Attempt { bearer, timeout: (self.client.0.answer_within + self.wait).min(left) })
    }

    /// Whether an earlier attempt may have had its effect although it failed.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.may_have_happened
    }

    /// Waits until the next attempt may begin. Returns the error when there is none.
    pub(crate) async fn failed(&mut self, error: Error, attempt: Attempt) -> Result<()> {
        if error.is(Code::Unauthenticated) && !self.renewed && self.client.forget(attempt.bearer.as_ref()) {
            self.renewed = true;
            return Ok(());
        }
        let policy = &self.client.0.retry;
        self.failures += 1;
        self.may_have_happened |= retry::ambiguous(&error);
        let Some(wanted) = retry::again(&error, self.repeat).filter(|_| self.failures < policy.attempts) else {
            return Err(error);
        };
        let pause = policy.pause(self.failures, wanted);
        if Instant::now() + pause >= self.deadline {
            return Err(error);
        }
        tracing::debug!(failures = self.failures, ?pause, "Retrying a call: {error}");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}
