//! Whether a caller may go on waiting: tokens expire and are revoked while their bearers wait.

use ensemble_chassis::{Caller, KeySource};
use tokio::sync::watch;

use crate::Orchestrator;
use crate::error::Error;

/// Looks again whenever the keys or the list of revoked tokens changed.
pub(crate) struct Watch {
    caller: Caller,
    changes: watch::Receiver<()>,
}

impl Watch {
    pub(crate) fn new(orchestrator: &Orchestrator, caller: Caller) -> Self {
        Self { caller, changes: orchestrator.keys.changes() }
    }

    /// # Errors
    /// The token does not count any more. Keys that cannot be had at the moment are no reason to end.
    pub(crate) fn check(&self, orchestrator: &Orchestrator) -> Result<(), Error> {
        let Ok(keys) = orchestrator.keys.current() else { return Ok(()) };
        self.caller.check(&keys, orchestrator.clock.now()).map_err(|_| Error::Unauthenticated)
    }

    /// Completes when there is a reason to check: the keys changed, or the token has expired.
    pub(crate) async fn alarm(&mut self, orchestrator: &Orchestrator) {
        let left = self.caller.expires_at.since(orchestrator.clock.now()) + std::time::Duration::from_secs(31);
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
