//! The internal interface: machine-registry reports here that a machine was deleted, and voice-gateway reads runs for their owner.

use ensemble_rpc::RpcError;
use ensemble_rpc::orchestrator::{
    EndMachineLeasesRequest, EndMachineLeasesResponse, ListRunsRequest, ListRunsResponse, MachineLeases, RunReader,
    ShowRunRequest, ShowRunResponse,
};
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::clients::Machines;
use crate::error::Error;
use crate::operations::briefs;
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

/// The most runs of one answer.
const MOST_RUNS: u32 = 20;

pub(crate) struct Briefs(pub(crate) Db);

impl RunReader for Briefs {
    fn list(&self, request: ListRunsRequest) -> BoxFuture<'_, Result<ListRunsResponse, RpcError>> {
        Box::pin(async move {
            let owner: UserId = request.user_id.parse().map_err(|_| malformed("account"))?;
            if !(1..=MOST_RUNS).contains(&request.limit) {
                return Err(RpcError::Invalid(format!("the limit must be 1 to {MOST_RUNS}")));
            }
            briefs::list(&self.0, owner, request.active_only, request.limit).await.map_err(failed)
        })
    }

    fn show(&self, request: ShowRunRequest) -> BoxFuture<'_, Result<ShowRunResponse, RpcError>> {
        Box::pin(async move {
            let owner: UserId = request.user_id.parse().map_err(|_| malformed("account"))?;
            let unknown = || RpcError::NotFound("no such run".to_owned());
            let run = request.run.parse().map_err(|_| unknown())?;
            briefs::show(&self.0, owner, run).await.map_err(failed)
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
        Error::NotFound => RpcError::NotFound(error.to_string()),
        other => RpcError::Internal(other.to_string()),
    }
}
