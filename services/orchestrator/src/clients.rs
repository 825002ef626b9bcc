//! The client of machine-registry, which knows the owner of a machine.

use std::sync::Arc;
use std::time::Duration;

use ensemble_rpc::RpcError;
use ensemble_rpc::machines::{GetMachineRequest, MachineDirectory};
use ensemble_types::ids::{MachineId, UserId};
use ensemble_types::time::Timestamp;
use moka::sync::Cache;

/// Machines in the cache.
const CACHE_SIZE: u64 = 100_000;

/// Asks machine-registry for the owner of a machine, and caches the answer so that known machines work while it is not
/// available. A machine that does not exist is not cached, because it can be registered at any moment.
#[derive(Clone)]
pub(crate) struct Machines {
    directory: Arc<dyn MachineDirectory>,
    known: Cache<(UserId, MachineId), ()>,
}

impl Machines {
    pub(crate) fn new(directory: Arc<dyn MachineDirectory>, time_to_live: Duration) -> Self {
        Self { directory, known: Cache::builder().max_capacity(CACHE_SIZE).time_to_live(time_to_live).build() }
    }

    pub(crate) async fn has(&self, owner: UserId, machine: &MachineId) -> Result<bool, RpcError> {
        Ok(self.known.contains_key(&(owner, machine.clone())) || self.created_at(owner, machine).await?.is_some())
    }

    /// When a machine was created, as machine-registry knows it now. `None` when it does not exist.
    pub(crate) async fn created_at(&self, owner: UserId, machine: &MachineId) -> Result<Option<Timestamp>, RpcError> {
        let request = GetMachineRequest { user_id: owner.to_string(), machine_id: machine.to_string() };
        match self.directory.get(request).await {
            Ok(found) => {
                self.known.insert((owner, machine.clone()), ());
                Ok(Some(Timestamp::from_micros(found.created_at)))
            }
            Err(RpcError::NotFound(_)) => {
                self.forget(owner, machine);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn forget(&self, owner: UserId, machine: &MachineId) {
        self.known.invalidate(&(owner, machine.clone()));
    }
}
