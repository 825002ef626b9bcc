//! The other services, asked through their contracts.

use std::sync::Arc;
use std::time::Duration;

use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{Accounts, GetAccountRequest};
use ensemble_rpc::machines::{GetMachineRequest, MachineDirectory};
use ensemble_types::ids::{MachineId, UserId};
use moka::future::Cache;

use crate::error::Error;

/// Machines that are remembered at most.
const REMEMBERED: u64 = 10_000;

/// Whom this service asks.
pub(crate) struct Peers {
    accounts: Arc<dyn Accounts>,
    machines: Arc<dyn MachineDirectory>,
    /// Machines that were found, so that known ones go on working while the registry is away.
    known: Cache<(UserId, MachineId), ()>,
}

impl Peers {
    pub(crate) fn new(accounts: Arc<dyn Accounts>, machines: Arc<dyn MachineDirectory>, remember: Duration) -> Self {
        let known = Cache::builder().max_capacity(REMEMBERED).time_to_live(remember).build();
        Self { accounts, machines, known }
    }

    /// Refuses a machine that is not this user's.
    pub(crate) async fn require_machine(&self, user: UserId, machine: &MachineId) -> Result<(), Error> {
        let key = (user, machine.clone());
        if self.known.get(&key).await.is_some() {
            return Ok(());
        }
        let request = GetMachineRequest { user_id: user.to_string(), machine_id: machine.to_string() };
        match self.machines.get(request).await {
            Ok(_) => {
                self.known.insert(key, ()).await;
                Ok(())
            }
            Err(RpcError::NotFound(_)) => Err(Error::MachineNotFound),
            Err(error) => Err(Error::Peer(error)),
        }
    }

    /// Refuses a user that does not exist.
    pub(crate) async fn require_user(&self, user: UserId) -> Result<(), Error> {
        match self.accounts.get(GetAccountRequest { user_id: user.to_string() }).await {
            Ok(_) => Ok(()),
            Err(RpcError::NotFound(_)) => Err(Error::UserNotFound),
            Err(error) => Err(Error::Peer(error)),
        }
    }
}
