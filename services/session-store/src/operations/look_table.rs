//! The looks that are on their way: in memory in one process; on PostgreSQL in an unlogged table, which all replicas read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ensemble_store_kit::Db;
use ensemble_types::ids::{LookId, MachineId, UserId};

use crate::domain::look::{Asked, Progress, Whose};
use crate::error::Error;
use crate::store;

/// Where looks are kept. A look is fresh for as long as its asker waits.
pub(crate) struct LookTable {
    place: Place,
    fresh_for: Duration,
}

enum Place {
    Memory(Mutex<HashMap<LookId, Kept>>),
    Database(Db),
}

struct Kept {
    asked: Asked,
    at: Instant,
    progress: Progress,
}

impl LookTable {
    /// `peers`: the database by which other replicas read it.
    pub(super) fn new(peers: Option<Db>, fresh_for: Duration) -> Self {
        Self { place: peers.map_or_else(|| Place::Memory(Mutex::default()), Place::Database), fresh_for }
    }

    pub(super) fn has_peers(&self) -> bool {
        matches!(self.place, Place::Database(_))
    }

    pub(super) async fn insert(&self, asked: Asked) -> Result<(), Error> {
        match &self.place {
            Place::Memory(all) => {
                let kept = Kept { at: Instant::now(), progress: Progress::Waiting, asked };
                lock(all).insert(kept.asked.id, kept);
                Ok(())
            }
            Place::Database(db) => db.write("ask a machine", move |tx| Ok(store::looks::insert(tx, &asked)?)).await,
        }
    }

    /// Takes those that were not sent yet and whose machine is read here. Each is taken once, on whatever replica.
    pub(super) async fn take(&self, is_here: impl Fn(UserId, &str) -> bool) -> Result<Vec<Asked>, Error> {
        let fresh_for = self.fresh_for;
        match &self.place {
            Place::Memory(all) => {
                let mut all = lock(all);
                let unsent = all.values_mut().filter(|kept| {
                    let Whose { owner, machine, .. } = &kept.asked.whose;
                    kept.progress == Progress::Waiting && is_here(*owner, machine.as_str())
                });
                let take = |kept: &mut Kept| {
                    kept.progress = Progress::Sent;
                    kept.asked.clone()
                };
                Ok(unsent.map(take).collect())
            }
            Place::Database(db) => {
                let unsent =
                    db.read("find looks", move |c| Ok::<_, Error>(store::looks::unsent(c, fresh_for)?)).await?;
                let here = unsent.into_iter().filter(|(_, owner, machine)| is_here(*owner, machine));
                let ids: Vec<LookId> = here.map(|(id, ..)| id).collect();
                if ids.is_empty() {
                    return Ok(Vec::new());
                }
                db.write("take looks", move |tx| Ok(store::looks::take(tx, &ids)?)).await
            }
        }
    }

    pub(super) async fn progress(&self, id: LookId) -> Result<Progress, Error> {
        match &self.place {
            Place::Memory(all) => Ok(lock(all).get(&id).map_or(Progress::Sent, |kept| kept.progress.clone())),
            Place::Database(db) => db.read("read how far a look is", move |c| Ok(store::looks::progress(c, id)?)).await,
        }
    }

    /// The machine that was asked, as long as it can answer.
    pub(super) async fn find(&self, id: LookId) -> Result<Option<Whose>, Error> {
        let fresh_for = self.fresh_for;
        match &self.place {
            Place::Memory(all) => {
                let all = lock(all);
                let kept = all.get(&id).filter(|kept| kept.is_open(fresh_for));
                Ok(kept.map(|kept| kept.asked.whose.clone()))
            }
            Place::Database(db) => {
                let found = db.read("find a look", move |c| Ok::<_, Error>(store::looks::find(c, id, fresh_for)?));
                Ok(found.await?.map(|asked| asked.whose))
            }
        }
    }

    /// Whether the answer counts: it is the first one of the machine that was asked, and its asker still waits.
    pub(super) async fn answer(
        &self,
        id: LookId,
        (owner, machine): (UserId, &MachineId),
        answer: String,
    ) -> Result<bool, Error> {
        let fresh_for = self.fresh_for;
        match &self.place {
            Place::Memory(all) => {
                let mut all = lock(all);
                let is_asked = |kept: &&mut Kept| {
                    let Whose { owner: of, machine: asked, .. } = &kept.asked.whose;
                    kept.is_open(fresh_for) && kept.progress == Progress::Sent && (*of, asked) == (owner, machine)
                };
                let Some(kept) = all.get_mut(&id).filter(is_asked) else { return Ok(false) };
                kept.progress = Progress::Answered(answer);
                Ok(true)
            }
            Place::Database(db) => {
                let machine = machine.clone();
                db.write("answer a look", move |tx| {
                    Ok(store::looks::answer(tx, id, (owner, &machine), &answer, fresh_for)?)
                })
                .await
            }
        }
    }

    pub(super) async fn remove(&self, id: LookId) -> Result<(), Error> {
        match &self.place {
            Place::Memory(all) => {
                lock(all).remove(&id);
                Ok(())
            }
            Place::Database(db) => db.write("remove a look", move |tx| Ok(store::looks::remove(tx, id)?)).await,
        }
    }

    /// Removes those whose asker has gone.
    pub(super) async fn remove_old(&self, kept_for: Duration) -> Result<(), Error> {
        match &self.place {
            Place::Memory(all) => {
                lock(all).retain(|_, kept| kept.at.elapsed() < kept_for);
                Ok(())
            }
            Place::Database(db) => {
                db.write("remove old looks", move |tx| Ok(store::looks::remove_old(tx, kept_for)?)).await
            }
        }
    }
}

impl Kept {
    fn is_open(&self, fresh_for: Duration) -> bool {
        self.at.elapsed() < fresh_for && !matches!(self.progress, Progress::Answered(_))
    }
}

fn lock(all: &Mutex<HashMap<LookId, Kept>>) -> MutexGuard<'_, HashMap<LookId, Kept>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
