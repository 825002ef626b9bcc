//! Tells identity and orchestrator of deleted machines, until both have heard it.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_rpc::RpcError;
use ensemble_rpc::identity::{Accounts, RevokeMachineTokensRequest};
use ensemble_rpc::orchestrator::{EndMachineLeasesRequest, MachineLeases};
use ensemble_store_kit::StoreError;

use crate::store::{Departure, Store};

/// What the loop needs. Several replicas may run it at once.
#[derive(Clone)]
pub(crate) struct Farewell {
    pub(crate) store: Store,
    pub(crate) accounts: Arc<dyn Accounts>,
    pub(crate) leases: Arc<dyn MachineLeases>,
    /// When a peer that could not be told is told again.
    pub(crate) retry_after: Duration,
    pub(crate) drain: Drain,
}

impl Farewell {
    pub(crate) async fn run(self) {
        let mut news = self.store.departures_come();
        loop {
            if let Err(error) = self.tell_all().await {
                tracing::warn!(%error, "Deleted machines could not be looked up");
            }
            tokio::select! {
                () = news.changed() => {}
                () = tokio::time::sleep(self.retry_after) => {}
                () = self.drain.closing() => return,
            }
        }
    }

    async fn tell_all(&self) -> Result<(), StoreError> {
        loop {
            let taken = self.store.take_departures(self.retry_after).await?;
            if taken.is_empty() {
                return Ok(());
            }
            for departure in taken {
                if self.drain.is_closing() {
                    return Ok(());
                }
                let told = self.tell(departure).await;
                self.store.note_told(told).await?;
            }
        }
    }

    /// Tells whoever has not been told, both at once.
    async fn tell(&self, mut departure: Departure) -> Departure {
        let identity = async { departure.identity_told || heard("identity", self.revoke_tokens(&departure).await) };
        let orchestrator =
            async { departure.orchestrator_told || heard("orchestrator", self.end_leases(&departure).await) };
        (departure.identity_told, departure.orchestrator_told) = futures_util::join!(identity, orchestrator);
        if departure.identity_told && departure.orchestrator_told {
            tracing::info!(machine.id = %departure.machine_id, "A deleted machine's tokens and leases have ended");
        }
        departure
    }

    async fn revoke_tokens(&self, departure: &Departure) -> Result<(), RpcError> {
        let request = RevokeMachineTokensRequest {
            user_id: departure.owner_id.to_string(),
            machine_id: departure.machine_id.clone(),
            made_until: departure.deleted_at.micros(),
        };
        self.accounts.revoke_machine_tokens(request).await.map(drop)
    }

    async fn end_leases(&self, departure: &Departure) -> Result<(), RpcError> {
        let request = EndMachineLeasesRequest {
            user_id: departure.owner_id.to_string(),
            machine_id: departure.machine_id.clone(),
            deleted_at: departure.deleted_at.micros(),
        };
        self.leases.end(request).await.map(drop)
    }
}

fn heard(who: &'static str, answer: Result<(), RpcError>) -> bool {
    match answer {
        // Nothing there to end: it has heard it.
        Ok(()) | Err(RpcError::NotFound(_)) => true,
        Err(error) => {
            tracing::warn!(peer = who, %error, "A peer could not be told of a deleted machine");
            false
        }
    }
}
