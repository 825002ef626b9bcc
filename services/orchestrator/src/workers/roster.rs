//! Who asked for leases lately. A runner that is new is written down at once, because tasks say whether they wait for a
//! machine; one that is known is written again with the next sweep, together with all others, and not with every call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_store_kit::StoreError;
use ensemble_types::ids::{MachineId, UserId};
use tokio::time::Instant;

use crate::store::{SeenRunner, Store, Wanted};

/// The runners that ask at this replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Roster {
    store: Store,
    known: Arc<Mutex<HashMap<(UserId, MachineId), Known>>>,
}

struct Known {
    providers: String,
    /// Until when it counts as there, and until when the database says so.
    until: Instant,
    written: Instant,
}

impl Roster {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, known: Arc::default() }
    }

    /// A runner asks, and may wait for so long.
    pub(crate) async fn seen(&self, wanted: &Wanted, wait: Duration) -> Result<(), StoreError> {
        let names: Vec<&str> = wanted.providers.iter().map(|provider| provider.as_str()).collect();
        let providers = names.join(",");
        let now = Instant::now();
        let until = now + wait + self.store.terms().runner_seen;
        let is_new = match self.known().get_mut(&(wanted.owner, wanted.machine.clone())) {
            Some(known) if known.providers == providers && known.written > now => {
                known.until = known.until.max(until);
                false
            }
            _ => true,
        };
        if is_new {
            let (owner, machine) = (wanted.owner, wanted.machine.clone());
            let within = until.duration_since(now);
            let seen = SeenRunner { owner, machine: machine.clone(), providers: providers.clone(), within };
            self.store.note_runners(vec![seen]).await?;
            self.known().insert((owner, machine), Known { providers, until, written: until });
        }
        Ok(())
    }

    /// Writes down those whose notes would run out before the next few sweeps, and forgets those that have gone.
    pub(crate) async fn write(&self, ahead: Duration) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut due = Vec::new();
        self.known().retain(|(owner, machine), known| {
            if known.until > known.written && known.written < now + ahead {
                let within = known.until.duration_since(now);
                let (owner, machine, providers) = (*owner, machine.clone(), known.providers.clone());
                due.push(SeenRunner { owner, machine, providers, within });
                known.written = known.until;
            }
            known.until > now
        });
        if due.is_empty() { Ok(()) } else { self.store.note_runners(due).await }
    }

    /// Its machine was deleted.
    pub(crate) fn forget(&self, owner: UserId, machine: &MachineId) {
        self.known().remove(&(owner, machine.clone()));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(UserId, MachineId), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
