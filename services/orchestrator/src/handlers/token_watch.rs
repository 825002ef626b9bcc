//! Ends requests that wait when their token expires or is revoked.

use std::time::Duration;

use ensemble_chassis::{Caller, KeySource};
use tokio::sync::watch;

use crate::Orchestrator;
use crate::error::Error;

/// Clocks may differ by this much, so a token is accepted for a little longer.
const CLOCK_SKEW: Duration = Duration::from_secs(31);

/// Watches the token of a request. The token is checked again when the keys or the list of revoked tokens changed.
pub(crate) struct TokenWatch {
    caller: Caller,
    changes: watch::Receiver<()>,
}

impl TokenWatch {
    pub(crate) fn new(service: &Orchestrator, caller: Caller) -> Self {
        Self { caller, changes: service.keys.changes() }
    }

    /// # Errors
    /// The token is no longer valid. While the keys are not available, the request continues.
    pub(crate) fn check(&self, service: &Orchestrator) -> Result<(), Error> {
        let Ok(keys) = service.keys.current() else { return Ok(()) };
        self.caller.check(&keys, service.clock.now()).map_err(|_| Error::Unauthenticated)
    }

    /// Completes when there is a reason to check: the keys changed, or the token has expired.
    pub(crate) async fn needs_check(&mut self, service: &Orchestrator) {
        let left = self.caller.expires_at.since(service.clock.now()) + CLOCK_SKEW;
        tokio::select! {
            changed = self.changes.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = tokio::time::sleep(left) => {}
        }
    }
}
