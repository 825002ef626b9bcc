//! The internal interface: machine-registry reports here that a machine was deleted.

use ensemble_rpc::RpcError;
use ensemble_rpc::orchestrator::{EndMachineLeasesRequest, EndMachineLeasesResponse, MachineLeases};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::clients::Machines;
use crate::error::Error;
use crate::operations::machines::end_leases;
use crate::workers::ActiveRunners;

pub(crate) struct MachineDeletions {
    pub(crate) db: Db,
    pub(crate) max_losses: i32,
    pub(crate) machines: Machines,
    pub(crate) active_runners: ActiveRunners,
}

impl MachineLeases for MachineDeletions {
    fn end(&self, request: EndMachineLeasesRequest) -> BoxFuture<'_, Result<EndMachineLeasesResponse, RpcError>> {
        Box::pin(async move {
            let owner: UserId = request.user_id.parse().map_err(|_| malformed("account"))?;
            let machine: MachineId = request.machine_id.parse().map_err(|_| malformed("machine"))?;
            self.machines.forget(owner, &machine);
            self.active_runners.forget(owner, &machine);
            let deleted_at = Timestamp::from_micros(request.deleted_at);
            let ended = end_leases(&self.db, &self.machines, self.max_losses, owner, machine, deleted_at)
                .await
                .map_err(failed)?;
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            Ok(EndMachineLeasesResponse { leases_ended: count(ended.leases), tasks_failed: count(ended.failed_tasks) })
        })
    }
}

fn malformed(what: &str) -> RpcError {
    RpcError::Invalid(format!("the id of the {what} is malformed"))
}

fn failed(error: Error) -> RpcError {
    match error {
        Error::Store(StoreError::Unavailable { .. } | StoreError::Busy { .. }) | Error::Peer(_) => {
            RpcError::Unavailable(error.to_string())
        }
        other => RpcError::Internal(other.to_string()),
    }
}
