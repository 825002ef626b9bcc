//! Notifies identity and orchestrator of deleted machines, when the request that deleted a machine could not notify both, until
//! both have answered.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::{Db, StoreError};

use crate::clients::DeletionPeers;
use crate::operations::deletions;

/// What the loop needs. Several replicas may run it at once.
pub(crate) struct DeletionNotifier {
    pub(crate) db: Db,
    pub(crate) peers: DeletionPeers,
    /// When a peer that did not answer is notified again.
    pub(crate) retry_after: Duration,
    pub(crate) drain: Drain,
}

impl DeletionNotifier {
    pub(crate) async fn run(self) {
        loop {
            if let Err(error) = self.notify_all().await {
                tracing::warn!(%error, "Deletions of machines could not be processed");
            }
            tokio::select! {
                () = tokio::time::sleep(self.retry_after) => {}
                () = self.drain.closing() => return,
            }
        }
    }

    async fn notify_all(&self) -> Result<(), StoreError> {
        loop {
            let taken = deletions::take(&self.db, self.retry_after).await?;
            if taken.is_empty() {
                return Ok(());
            }
            for deletion in taken {
                if self.drain.is_closing() {
                    return Ok(());
                }
                let notified = deletions::notify(&self.peers, deletion).await;
                deletions::record(&self.db, notified).await?;
            }
        }
    }
}
