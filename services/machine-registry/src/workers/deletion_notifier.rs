//! Notifies identity and orchestrator of deleted machines, until both have answered.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{Accounts, RevokeMachineTokensRequest};
use ensemble_rpc::orchestrator::{EndMachineLeasesRequest, MachineLeases};
use ensemble_store_kit::{Db, StoreError};

use crate::operations::deletions;
use crate::store::deletions::{Deletion, topic};

/// What the loop needs. Several replicas may run it at once.
pub(crate) struct DeletionNotifier {
    pub(crate) db: Db,
    pub(crate) accounts: Arc<dyn Accounts>,
    pub(crate) leases: Arc<dyn MachineLeases>,
    /// When a peer that did not answer is notified again.
    pub(crate) retry_after: Duration,
    pub(crate) drain: Drain,
}

impl DeletionNotifier {
    pub(crate) async fn run(self) {
        let mut deleted = self.db.notifier().subscribe(topic());
        loop {
            if let Err(error) = self.notify_all().await {
                tracing::warn!(%error, "Deletions of machines could not be processed");
            }
            tokio::select! {
                () = deleted.changed() => {}
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
                let notified = self.notify(deletion).await;
                deletions::record(&self.db, notified).await?;
            }
        }
    }

    /// Notifies the peers that do not know yet, both at once.
    async fn notify(&self, mut deletion: Deletion) -> Deletion {
        let identity = async { deletion.identity_notified || is_done("identity", self.revoke_tokens(&deletion).await) };
        let orchestrator =
            async { deletion.orchestrator_notified || is_done("orchestrator", self.end_leases(&deletion).await) };
        (deletion.identity_notified, deletion.orchestrator_notified) = futures_util::join!(identity, orchestrator);
        if deletion.identity_notified && deletion.orchestrator_notified {
            tracing::info!(machine.id = %deletion.machine_id, "A deleted machine's tokens and leases have ended");
        }
        deletion
    }

    async fn revoke_tokens(&self, deletion: &Deletion) -> Result<(), RpcError> {
        let request = RevokeMachineTokensRequest {
            user_id: deletion.owner_id.to_string(),
            machine_id: deletion.machine_id.clone(),
            made_until: deletion.deleted_at.micros(),
        };
        self.accounts.revoke_machine_tokens(request).await.map(drop)
    }

    async fn end_leases(&self, deletion: &Deletion) -> Result<(), RpcError> {
        let request = EndMachineLeasesRequest {
            user_id: deletion.owner_id.to_string(),
            machine_id: deletion.machine_id.clone(),
            deleted_at: deletion.deleted_at.micros(),
        };
        self.leases.end(request).await.map(drop)
    }
}

fn is_done(peer: &'static str, answer: Result<(), RpcError>) -> bool {
    match answer {
        // Not found: the peer has nothing to end.
        Ok(()) | Err(RpcError::NotFound(_)) => true,
        Err(error) => {
            tracing::warn!(peer, %error, "A peer could not be notified of a deleted machine");
            false
        }
    }
}
