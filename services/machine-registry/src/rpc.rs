//! The internal door: what peers may ask about machines.

use ensemble_rpc::RpcError;
use ensemble_rpc::machines::{GetMachineRequest, GetMachineResponse, MachineDirectory};
use ensemble_store_kit::StoreError;
use futures_util::future::BoxFuture;

use crate::domain::OwnMachine;
use crate::error::Error;
use crate::store::Store;

/// Which machines an account has.
pub(crate) struct Directory {
    store: Store,
}

impl Directory {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }
}

impl MachineDirectory for Directory {
    fn get(&self, request: GetMachineRequest) -> BoxFuture<'_, Result<GetMachineResponse, RpcError>> {
        Box::pin(async move {
            let malformed = |_| RpcError::Invalid("an id is malformed".to_owned());
            let owner = request.user_id.parse().map_err(malformed)?;
            let id = request.machine_id.parse().map_err(malformed)?;
            let machine = self.store.find(OwnMachine { owner, id }).await?;
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
            Error::NoSuchMachine => Self::NotFound(error.to_string()),
            Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) => {
                Self::Unavailable(error.to_string())
            }
            other => Self::Internal(other.to_string()),
        }
    }
}
