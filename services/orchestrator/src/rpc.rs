//! The internal door: what machine-registry tells of machines that are gone.

use ensemble_rpc::RpcError;
use ensemble_rpc::orchestrator::{EndMachineLeasesRequest, EndMachineLeasesResponse, MachineLeases};
use ensemble_store_kit::StoreError;
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::clients::Machines;
use crate::store::Store;
use crate::workers::Roster;

pub(crate) struct Farewells {
    pub(crate) store: Store,
    pub(crate) machines: Machines,
    pub(crate) roster: Roster,
}

impl MachineLeases for Farewells {
    fn end(&self, request: EndMachineLeasesRequest) -> BoxFuture<'_, Result<EndMachineLeasesResponse, RpcError>> {
        Box::pin(async move {
            let owner: UserId = request.user_id.parse().map_err(|_| malformed("account"))?;
            let machine: MachineId = request.machine_id.parse().map_err(|_| malformed("machine"))?;
            self.machines.forget(owner, &machine);
            self.roster.forget(owner, &machine);
            let until = Timestamp::from_micros(request.deleted_at);
            let (leases_ended, tasks_failed) = self.store.bury_machine(owner, machine, until).await.map_err(failed)?;
            Ok(EndMachineLeasesResponse { leases_ended, tasks_failed })
        })
    }
}

fn malformed(what: &str) -> RpcError {
    RpcError::Invalid(format!("the id of the {what} is malformed"))
}

fn failed(error: StoreError) -> RpcError {
    match error {
        StoreError::Unavailable { .. } | StoreError::Busy { .. } => RpcError::Unavailable(error.to_string()),
        other => RpcError::Internal(other.to_string()),
    }
}
