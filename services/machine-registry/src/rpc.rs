//! The internal listener: what peers may ask about machines.

use std::sync::Arc;

use ensemble_rpc::RpcError;
use ensemble_rpc::machines::{GetMachineRequest, GetMachineResponse, MachineDirectory};
use ensemble_store_kit::StoreError;
use futures_util::future::BoxFuture;

use crate::MachineRegistry;
use crate::domain::OwnMachine;
use crate::error::Error;
use crate::operations::machines;

/// Says which machines an account has.
pub(crate) struct Directory(pub(crate) Arc<MachineRegistry>);

impl MachineDirectory for Directory {
    fn get(&self, request: GetMachineRequest) -> BoxFuture<'_, Result<GetMachineResponse, RpcError>> {
        Box::pin(async move {
            let malformed = |_| RpcError::Invalid("an id is malformed".to_owned());
            let owner = request.user_id.parse().map_err(malformed)?;
            let id = request.machine_id.parse().map_err(malformed)?;
            let machine = machines::read(&self.0, OwnMachine { owner, id }).await?;
            Ok(GetMachineResponse {
                machine_id: machine.id.to_string(),
                online: machine.presence.online,
                created_at: machine.created_at.micros(),
            })
        })
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        match error {
            Error::MachineNotFound => Self::NotFound(error.to_string()),
            Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) => {
                Self::Unavailable(error.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}
