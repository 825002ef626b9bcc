//! What has to happen at a time: leases expire, attempts reach their timeouts, and pauses end. Any replica does it, one run
//! at a time, and skips a run that another transaction has locked.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::time::Timestamp;

use super::attempts::{EndingAttempt, end_attempts};
use super::changes::{LockedRuns, count, release_machine, save_run};
use crate::domain::AttemptEnd;
use crate::store::leases::LockedLease;
use crate::store::tasks::{AttemptResults, LockedTask};
use crate::store::{holds, leases, runs, tasks};

/// When something is due next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The database's clock.
    pub(crate) now: Timestamp,
    pub(crate) next: Option<Timestamp>,
    /// When a machine no longer waits for a provider.
    hold: Option<Timestamp>,
}

impl Schedule {
    pub(crate) fn is_due(&self) -> bool {
        self.next.is_some_and(|next| next <= self.now)
    }

    pub(crate) fn hold_is_due(&self) -> bool {
        self.hold.is_some_and(|end| end <= self.now)
    }

    /// How long nothing is due, at most `longest`.
    pub(crate) fn wait(&self, longest: Duration) -> Duration {
        self.next.map_or(longest, |next| next.since(self.now)).min(longest)
    }
}

/// Leases and pauses that are loaded at once.
const BATCH: i64 = 256;

pub(crate) async fn schedule(db: &Db) -> Result<Schedule, StoreError> {
    db.read("look for what is due next", |c| {
        let (lease, pause, hold) = (leases::next_due(c)?, tasks::next_pause_end(c)?, holds::next_end(c)?);
        Ok(Schedule { now: c.now()?, next: lease.into_iter().chain(pause).chain(hold).min(), hold })
    })
    .await
}

/// Extends every lease, because no heartbeat could arrive while the service was away. Returns how many.
pub(crate) async fn extend_all_leases(db: &Db, life: Duration) -> Result<usize, StoreError> {
    db.write("extend all leases", move |tx| {
        let until = tx.now()?.plus(life);
        leases::extend_all(tx, until)
    })
    .await
}

/// The runs in which something is due, with the tasks whose pauses are over.
pub(crate) async fn due(db: &Db, now: Timestamp) -> Result<BTreeMap<RunId, Vec<TaskId>>, StoreError> {
    db.read("look for what is due", move |c| {
        let mut due: BTreeMap<RunId, Vec<TaskId>> = BTreeMap::new();
        for run in leases::due_runs(c, now, BATCH)? {
            due.entry(run).or_default();
        }
        for (run, task) in tasks::due_pauses(c, now, BATCH)? {
            due.entry(run).or_default().push(task);
        }
        Ok(due)
    })
    .await
}

/// Does what is due in a run, unless another transaction has locked it. Returns how many machines were lost while they ran a
/// task.
pub(crate) async fn process(db: &Db, max_losses: i32, id: RunId, paused: Vec<TaskId>) -> Result<usize, StoreError> {
    db.write("do what is due in a run", move |tx| process_in(tx, max_losses, id, &paused)).await
}

fn process_in(tx: &mut Conn, max_losses: i32, id: RunId, paused: &[TaskId]) -> Result<usize, StoreError> {
    let Some(mut run) = runs::try_lock(tx, id)? else { return Ok(0) };
    let resumed = if paused.is_empty() { 0 } else { tasks::end_pauses(tx, &run, paused)? };
    run.counts.ready += count(resumed);
    let due = leases::lock_due(tx, &run)?;
    if resumed == 0 && due.is_empty() {
        return Ok(0);
    }
    let machines: Vec<String> = due.iter().map(|(_, lease)| lease.machine_id.clone()).collect();
    let now = run.now;
    let attempts: Vec<EndingAttempt> = due.into_iter().map(|(task, lease)| ending(id, task, lease, now)).collect();
    let lost = attempts.iter().filter(|attempt| attempt.end == AttemptEnd::MachineLost).count();
    let mut runs = LockedRuns::from([(id, run)]);
    end_attempts(tx, &mut runs, attempts, max_losses)?;
    for run in runs.values_mut() {
        for machine in &machines {
            release_machine(tx, run, machine)?;
        }
        save_run(tx, run, run.counts.event())?;
    }
    Ok(lost)
}

fn ending(run: RunId, task: LockedTask, lease: LockedLease, now: Timestamp) -> EndingAttempt {
    let end = match (lease.beaten_at, lease.timeout_at) {
        (None, _) => AttemptEnd::NeverStarted,
        (Some(_), Some(timeout)) if timeout <= now && lease.waits().is_none() => AttemptEnd::TimedOut,
        _ => AttemptEnd::MachineLost,
    };
    tracing::info!(run.id = %run, task.id = %task.id, lease.id = %lease.id, ?end, "Ended a lease");
    EndingAttempt { run, task, lease, end, results: AttemptResults::default() }
}
