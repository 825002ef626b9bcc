//! The peers that have to know of a deleted machine.

use std::sync::Arc;

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{Accounts, RevokeMachineTokensRequest};
use ensemble_rpc::orchestrator::{EndMachineLeasesRequest, MachineLeases};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeletionPeers {
    pub(crate) accounts: Arc<dyn Accounts>,
    pub(crate) leases: Arc<dyn MachineLeases>,
}

impl DeletionPeers {
    /// Whether identity has revoked the machine's tokens.
    pub(crate) async fn revoke_tokens(&self, owner: UserId, machine: &str, deleted_at: Timestamp) -> bool {
        let request = RevokeMachineTokensRequest {
            user_id: owner.to_string(),
            machine_id: machine.to_owned(),
            made_until: deleted_at.micros(),
        };
        is_done("identity", self.accounts.revoke_machine_tokens(request).await.map(drop))
    }

    /// Whether the orchestrator has ended the machine's leases, and grants no more.
    pub(crate) async fn end_leases(&self, owner: UserId, machine: &str, deleted_at: Timestamp) -> bool {
        let request = EndMachineLeasesRequest {
            user_id: owner.to_string(),
            machine_id: machine.to_owned(),
            deleted_at: deleted_at.micros(),
        };
        is_done("orchestrator", self.leases.end(request).await.map(drop))
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
