//! Clients of the other services, behind the traits that their contracts generate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{Accounts, GetAccountRequest, ListVersionsRequest, ListVersionsResponse};
use ensemble_rpc::machines::{GetMachineRequest, MachineDirectory};
use ensemble_types::ids::{MachineId, UserId};
use moka::sync::Cache;

use crate::error::Error;

/// The most machines that the cache holds.
const MACHINE_CACHE_SIZE: u64 = 10_000;

/// The services that this one depends on.
pub(crate) struct Peers {
    accounts: Arc<dyn Accounts>,
    machines: Arc<dyn MachineDirectory>,
    /// Machines that the registry confirmed recently, so that they stay usable while the registry is down.
    known_machines: Cache<(UserId, MachineId), ()>,
}

impl Peers {
    pub(crate) fn new(accounts: Arc<dyn Accounts>, machines: Arc<dyn MachineDirectory>, cache_for: Duration) -> Self {
        let known_machines = Cache::builder().max_capacity(MACHINE_CACHE_SIZE).time_to_live(cache_for).build();
        Self { accounts, machines, known_machines }
    }

    /// Fails unless the machine belongs to the user.
    pub(crate) async fn require_machine(&self, user: UserId, machine: &MachineId) -> Result<(), Error> {
        let key = (user, machine.clone());
        if self.known_machines.get(&key).is_some() {
            return Ok(());
        }
        let request = GetMachineRequest { user_id: user.to_string(), machine_id: machine.to_string() };
        match self.machines.get(request).await {
            Ok(_) => {
                self.known_machines.insert(key, ());
                Ok(())
            }
            Err(RpcError::NotFound(_)) => Err(Error::MachineNotFound),
            Err(error) => Err(Error::Peer(error)),
        }
    }

    /// The versions of the newest device lists of these users, as far as they can be read now.
    pub(crate) async fn list_versions(&self, users: impl Iterator<Item = UserId>) -> HashMap<UserId, u32> {
        let user_ids: Vec<String> = users.map(|user| user.to_string()).collect();
        if user_ids.is_empty() {
            return HashMap::new();
        }
        let found = self.accounts.list_versions(ListVersionsRequest { user_ids }).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "The versions of device lists could not be read");
            ListVersionsResponse::default()
        });
        found.versions.into_iter().filter_map(|of| Some((of.user_id.parse().ok()?, of.version))).collect()
    }

    /// Fails unless the user exists.
    pub(crate) async fn require_user(&self, user: UserId) -> Result<(), Error> {
        match self.accounts.get(GetAccountRequest { user_id: user.to_string() }).await {
            Ok(_) => Ok(()),
            Err(RpcError::NotFound(_)) => Err(Error::UserNotFound),
            Err(error) => Err(Error::Peer(error)),
        }
    }
}
