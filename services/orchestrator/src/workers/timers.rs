//! Does what is due, and is the net below the wake-ups. Sleeps until the next time that the database knows, until
//! somebody sets an earlier one here, or until the next sweep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::{StoreError, Topic};
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Roster;
use crate::metrics::RunMetrics;
use crate::store::{Store, until};

/// After an error of the database.
const PAUSE: Duration = Duration::from_millis(500);
/// What is due and was not done is in other hands, or came in between.
const AGAIN: Duration = Duration::from_millis(20);

/// Tells the timers of this replica of something that is due sooner than they think. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Nudge(Arc<Planned>);

#[derive(Default)]
struct Planned {
    /// When they look next; nothing while they are looking.
    at: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl Nudge {
    /// Something is due after so long.
    pub(crate) fn within(&self, so_long: Duration) {
        let sooner = self.planned().is_none_or(|at| Instant::now() + so_long < at);
        if sooner {
            self.0.sooner.notify_one();
        }
    }

    fn plan(&self, at: Option<Instant>) {
        *self.planned() = at;
    }

    fn planned(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Timers {
    pub(crate) store: Store,
    pub(crate) roster: Roster,
    pub(crate) nudge: Nudge,
    pub(crate) metrics: RunMetrics,
    pub(crate) sweep: Duration,
    pub(crate) sweep_late: Duration,
    pub(crate) drain: Drain,
}

/// What this replica remembers between two sweeps.
#[derive(Default)]
struct Memory {
    /// The database's clock at the last look.
    looked: Option<Timestamp>,
    swept: Option<Instant>,
    versions: HashMap<RunId, i64>,
    work: HashMap<UserId, Timestamp>,
}

impl Timers {
    pub(crate) async fn run(self) {
        let mut memory = Memory::default();
        while !self.drain.is_closing() {
            self.nudge.plan(None);
            let wait = match self.round(&mut memory).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "The timers could not look for what is due");
                    PAUSE
                }
            };
            self.nudge.plan(Some(Instant::now() + wait));
            tokio::select! {
                () = self.drain.closing() => return,
                _ = timeout(wait, self.nudge.0.sooner.notified()) => {}
            }
        }
    }

    /// Does what is due, and says how long there is nothing to do.
    async fn round(&self, memory: &mut Memory) -> Result<Duration, StoreError> {
        let due = self.store.next_due().await?;
        // Nobody beats while nobody listens: after a start, and after a time in which this replica or its database was
        // away, runners get the time to come back.
        let away = memory.looked.is_none_or(|looked| due.now.since(looked) > self.sweep + self.sweep_late);
        if away {
            let leases = self.store.pardon().await?;
            tracing::info!(leases, "Gave every lease a fresh life");
        } else if due.next.is_some_and(|next| next <= due.now) {
            for run in self.store.due_runs().await? {
                self.metrics.lost(self.store.settle(run).await?);
            }
        }
        memory.looked = Some(due.now);
        self.sweep_waiting(memory).await?;
        let due = if away || due.next.is_some_and(|next| next <= due.now) { self.store.next_due().await? } else { due };
        Ok(until(due, self.sweep).max(AGAIN))
    }

    /// Notifier those who wait here for what has changed since the last sweep without their being told.
    async fn sweep_waiting(&self, memory: &mut Memory) -> Result<(), StoreError> {
        if memory.swept.is_some_and(|swept| swept.elapsed() < self.sweep) {
            return Ok(());
        }
        // Early enough that a sweep or two may fail before a runner counts as gone.
        self.roster.write((self.store.terms().runner_seen / 2).max(self.sweep * 2)).await?;
        let wakes = self.store.notifier();
        let mut lost: Vec<Topic> = Vec::new();
        let runs = subscribed(&wakes.subscribed("run"), &wakes.subscribed("ended"));
        let mut versions = HashMap::new();
        if !runs.is_empty() {
            for (run, version) in self.store.versions(runs).await? {
                if memory.versions.get(&run).is_none_or(|known| *known != version) {
                    lost.extend([crate::store::changed(run), crate::store::ended(run)]);
                }
                versions.insert(run, version);
            }
        }
        memory.versions = versions;
        let waiting = wakes.subscribed("work");
        let owners: Vec<UserId> = waiting.iter().filter_map(owner_of).collect();
        let mut work = HashMap::new();
        if !owners.is_empty() {
            for (owner, at) in self.store.with_work(owners).await? {
                if memory.work.get(&owner).is_none_or(|known| *known != at) {
                    lost.extend(waiting.iter().filter(|topic| owner_of(topic) == Some(owner)).cloned());
                }
                work.insert(owner, at);
            }
        }
        memory.work = work;
        wakes.deliver(&lost);
        memory.swept = Some(Instant::now());
        Ok(())
    }
}

fn subscribed(changes: &[Topic], ends: &[Topic]) -> Vec<RunId> {
    let mut runs: Vec<RunId> = changes.iter().chain(ends).filter_map(|topic| topic.id().parse().ok()).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

/// The account of a topic about work, which may name a machine after it.
fn owner_of(topic: &Topic) -> Option<UserId> {
    topic.id().split('/').next()?.parse().ok()
}
