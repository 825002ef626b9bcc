//! Does what is due, and finds what missed notifications did not report. It sleeps until the next time that the database
//! knows, until an operation of this replica sets an earlier alarm, or until the next sweep.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::{Db, StoreError, Topic};
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::time::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::ActiveRunners;
use crate::config::Limits;
use crate::metrics::RunMetrics;
use crate::operations::topics::{run_changed, run_ended};
use crate::operations::{quota, runs, task_changes, timers};

/// The pause after a database error.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// The shortest pause. What is due already and was not done is locked by another transaction, or became due meanwhile.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// Wakes the timers of this replica for something that is due sooner than they expect. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Alarm(Arc<Planned>);

#[derive(Default)]
struct Planned {
    /// When the timers look next. `None` while they are looking.
    next_look: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl Alarm {
    /// Something is due after this time.
    pub(crate) fn due_after(&self, duration: Duration) {
        if self.next_look().is_none_or(|at| Instant::now() + duration < at) {
            self.0.sooner.notify_one();
        }
    }

    fn plan(&self, next_look: Option<Instant>) {
        *self.next_look() = next_look;
    }

    fn next_look(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.next_look.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Timers {
    pub(crate) db: Db,
    pub(crate) limits: Limits,
    pub(crate) active_runners: ActiveRunners,
    pub(crate) alarm: Alarm,
    pub(crate) metrics: RunMetrics,
    pub(crate) sweep: Duration,
    pub(crate) sweep_late: Duration,
    pub(crate) drain: Drain,
}

/// What this replica knows from the last sweep.
#[derive(Default)]
struct LastSweep {
    /// The database's clock at the last look for due work.
    looked_at: Option<Timestamp>,
    swept_at: Option<Instant>,
    versions: HashMap<RunId, i64>,
    work: HashMap<UserId, Timestamp>,
}

impl Timers {
    pub(crate) async fn run(self) {
        let mut last = LastSweep::default();
        while !self.drain.is_closing() {
            self.alarm.plan(None);
            let wait = match self.look(&mut last).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(%error, "The timers could not look for what is due");
                    ERROR_PAUSE
                }
            };
            self.alarm.plan(Some(Instant::now() + wait));
            tokio::select! {
                () = self.drain.closing() => return,
                _ = timeout(wait, self.alarm.0.sooner.notified()) => {}
            }
        }
    }

    /// Does what is due, and returns how long nothing else is.
    async fn look(&self, last: &mut LastSweep) -> Result<Duration, StoreError> {
        let mut schedule = timers::schedule(&self.db).await?;
        // No heartbeat arrives while the service or its database is stopped. So after a start, and after a long
        // interruption, runners get the life of a lease to reconnect.
        let was_away = last.looked_at.is_none_or(|at| schedule.now.since(at) > self.sweep + self.sweep_late);
        let is_due = schedule.is_due();
        if was_away {
            let leases = timers::extend_all_leases(&self.db, self.limits.lease).await?;
            tracing::info!(leases, "Extended every lease");
        } else if is_due {
            if schedule.hold_is_due() {
                quota::end_due(&self.db).await?;
            }
            for (run, paused) in timers::due(&self.db, schedule.now).await? {
                let lost = timers::process(&self.db, self.limits.max_losses, run, paused).await?;
                self.metrics.machines_lost(lost);
            }
        }
        last.looked_at = Some(schedule.now);
        if last.swept_at.is_none_or(|at| at.elapsed() >= self.sweep) {
            self.sweep(last).await?;
        }
        if was_away || is_due {
            schedule = timers::schedule(&self.db).await?;
        }
        Ok(schedule.wait(self.sweep).max(MIN_PAUSE))
    }

    /// Withdraws overdue orders. Wakes the requests at this replica whose runs or accounts have changed since the last sweep. Usually a notification
    /// has woken them before.
    async fn sweep(&self, last: &mut LastSweep) -> Result<(), StoreError> {
        task_changes::withdraw_overdue(&self.db).await?;
        // Early enough that one or two sweeps can fail before a runner counts as inactive.
        self.active_runners.renew((self.limits.runner_active / 2).max(self.sweep * 2)).await?;
        let mut missed = self.changed_runs(last).await?;
        missed.append(&mut self.accounts_with_work(last).await?);
        self.db.notifier().deliver(&missed);
        last.swept_at = Some(Instant::now());
        Ok(())
    }

    async fn changed_runs(&self, last: &mut LastSweep) -> Result<Vec<Topic>, StoreError> {
        let notifier = self.db.notifier();
        let topics = [notifier.subscribed("run"), notifier.subscribed("ended")].concat();
        let mut ids: Vec<RunId> = topics.iter().filter_map(|topic| topic.id().parse().ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        let versions: HashMap<RunId, i64> = runs::versions(&self.db, ids).await?.into_iter().collect();
        let is_new = |(run, version): &(&RunId, &i64)| last.versions.get(run) != Some(version);
        let missed = versions.iter().filter(is_new).flat_map(|(run, _)| [run_changed(*run), run_ended(*run)]).collect();
        last.versions = versions;
        Ok(missed)
    }

    async fn accounts_with_work(&self, last: &mut LastSweep) -> Result<Vec<Topic>, StoreError> {
        let topics = self.db.notifier().subscribed("work");
        let mut owners: Vec<UserId> = topics.iter().filter_map(owner_of).collect();
        owners.sort_unstable();
        owners.dedup();
        let work: HashMap<UserId, Timestamp> = runs::ready_work(&self.db, owners).await?.into_iter().collect();
        let is_new = |owner: UserId| work.get(&owner).is_some_and(|at| last.work.get(&owner) != Some(at));
        let missed = topics.into_iter().filter(|topic| owner_of(topic).is_some_and(is_new)).collect();
        last.work = work;
        Ok(missed)
    }
}

/// The account of a topic about work, which can name a machine after it.
fn owner_of(topic: &Topic) -> Option<UserId> {
    topic.id().split('/').next()?.parse().ok()
}
