//! The runners that request leases at this replica. A new runner is recorded in the database at once, because tasks report
//! whether they wait for a machine. The records of known runners are renewed together with a sweep, and not with each
//! request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_store_kit::{Db, StoreError};
use ensemble_types::ids::{MachineId, UserId};
use tokio::time::Instant;

use crate::domain::{ActiveRunner, RunnerRequest};
use crate::operations::runners::record;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct ActiveRunners {
    db: Db,
    /// How long a runner counts as active after its request.
    active_for: Duration,
    known: Arc<Mutex<HashMap<(UserId, MachineId), Known>>>,
}

struct Known {
    providers: String,
    slots: Option<u32>,
    active_until: Instant,
    /// Until when the record in the database says that the runner is active.
    recorded_until: Instant,
}

impl ActiveRunners {
    pub(crate) fn new(db: Db, active_for: Duration) -> Self {
        Self { db, active_for, known: Arc::default() }
    }

    /// A runner requests leases and may wait this long for them.
    pub(crate) async fn requested(&self, request: &RunnerRequest, wait: Duration) -> Result<(), StoreError> {
        let providers = request.names();
        let now = Instant::now();
        let active_until = now + wait + self.active_for;
        let is_recorded = match self.known().get_mut(&(request.owner, request.machine.clone())) {
            Some(known)
                if known.providers == providers && known.slots == request.slots && known.recorded_until > now =>
            {
                known.active_until = known.active_until.max(active_until);
                true
            }
            _ => false,
        };
        if !is_recorded {
            let (owner, machine) = (request.owner, request.machine.clone());
            let active_for = active_until.duration_since(now);
            let slots = request.slots;
            let runner =
                ActiveRunner { owner, machine: machine.clone(), providers: providers.clone(), slots, active_for };
            record(&self.db, vec![runner]).await?;
            let known = Known { providers, slots, active_until, recorded_until: active_until };
            self.known().insert((owner, machine), known);
        }
        Ok(())
    }

    /// Renews the records that would expire within `ahead`, and forgets the runners that are no longer active.
    pub(crate) async fn renew(&self, ahead: Duration) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut expiring = Vec::new();
        self.known().retain(|(owner, machine), known| {
            if known.active_until > known.recorded_until && known.recorded_until < now + ahead {
                let active_for = known.active_until.duration_since(now);
                let (owner, machine, providers) = (*owner, machine.clone(), known.providers.clone());
                let slots = known.slots;
                expiring.push(ActiveRunner { owner, machine, providers, slots, active_for });
                known.recorded_until = known.active_until;
            }
            known.active_until > now
        });
        if expiring.is_empty() { Ok(()) } else { record(&self.db, expiring).await }
    }

    /// Its machine was deleted.
    pub(crate) fn forget(&self, owner: UserId, machine: &MachineId) {
        self.known().remove(&(owner, machine.clone()));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(UserId, MachineId), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
