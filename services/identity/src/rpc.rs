//! The internal listener: keys for peers that verify tokens, and what peers may ask and do about accounts.

use std::sync::Arc;

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{
    Accounts, GetAccountRequest, GetAccountResponse, Keys, RevokeMachineTokensRequest, RevokeMachineTokensResponse,
    SnapshotRequest, SnapshotResponse,
};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::error::Error;
use crate::keys::KeyRing;
use crate::operations::{accounts, tokens};

/// Implements both contracts of this service.
pub(crate) struct RpcServer {
    pub(crate) db: Db,
    pub(crate) ring: Arc<KeyRing>,
}

impl Keys for RpcServer {
    fn snapshot(&self, request: SnapshotRequest) -> BoxFuture<'_, Result<SnapshotResponse, RpcError>> {
        Box::pin(async move {
            let stale = || RpcError::Unavailable("the keys have not been loaded for too long".to_owned());
            self.ring.snapshot(&request.known_version).ok_or_else(stale)
        })
    }
}

impl Accounts for RpcServer {
    fn get(&self, request: GetAccountRequest) -> BoxFuture<'_, Result<GetAccountResponse, RpcError>> {
        Box::pin(async move {
            let account = accounts::read(&self.db, user(&request.user_id)?).await?;
            Ok(GetAccountResponse { user_id: request.user_id, created_at: account.created_at.micros() })
        })
    }

    fn revoke_machine_tokens(
        &self,
        request: RevokeMachineTokensRequest,
    ) -> BoxFuture<'_, Result<RevokeMachineTokensResponse, RpcError>> {
        Box::pin(async move {
            let machine = request.machine_id.parse().map_err(|_| malformed())?;
            let until = Timestamp::from_micros(request.made_until);
            let user = user(&request.user_id)?;
            let revoked = tokens::revoke_of_machine(&self.db, user, machine, until).await.map_err(Error::from)?;
            tracing::info!(machine.id = %request.machine_id, revoked, "Revoked the tokens of a deleted machine");
            Ok(RevokeMachineTokensResponse { revoked: u32::try_from(revoked).unwrap_or(u32::MAX) })
        })
    }
}

fn user(id: &str) -> Result<UserId, RpcError> {
    id.parse().map_err(|_| malformed())
}

fn malformed() -> RpcError {
    RpcError::Invalid("an id is malformed".to_owned())
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        match error {
            Error::AccountNotFound => Self::NotFound(error.to_string()),
            Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) => {
                Self::Unavailable(error.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}
