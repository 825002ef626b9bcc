//! Changes of a locked run and of the tasks that depend on each other in it.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::{TaskError, TaskStatus};

use super::pushes;
use super::topics::{notify_run, run_ended, work, work_for};
use crate::domain::{RunEvent, TaskEvent, run_transition, task_transition};
use crate::store::runs::LockedRun;
use crate::store::tasks::Dependent;
use crate::store::{failures, leases, runs, task_sessions, tasks};

/// The runs that a transaction has locked.
pub(super) type LockedRuns = BTreeMap<RunId, LockedRun>;

/// Tasks that depend on one task, or on each other in a chain, can be 10,000. Changing all of them takes half a second on a
/// quiet machine. A busy machine gets this long, because the report that causes the change would be repeated until it
/// succeeds.
const LONG_STATEMENT: Duration = Duration::from_secs(20);
/// With more dependents than this, their change counts as long.
const MANY_DEPENDENTS: i64 = 500;

impl LockedRun {
    pub(super) fn is_cancelling(&self) -> bool {
        self.status == ensemble_types::runs::RunStatus::Canceling
    }

    /// Sets the status that follows from an event.
    ///
    /// # Errors
    /// The event cannot happen in this status, which is a bug of this service.
    pub(super) fn apply_event(&mut self, event: RunEvent, operation: &'static str) -> Result<(), StoreError> {
        self.status = run_transition(self.status, event).ok_or_else(|| {
            StoreError::bad_row(operation, format!("{event:?} cannot happen to a run that is {:?}", self.status))
        })?;
        Ok(())
    }

    /// Notifies the requests that wait for the run, and the runners when it has ready tasks.
    fn notify(&self, tx: &mut Conn) -> Result<(), StoreError> {
        notify_run(tx, self.id, self.owner, self.now);
        if self.status.is_terminal() {
            tx.notify(run_ended(self.id));
        } else if self.counts.ready > 0 && !self.is_cancelling() && self.has_room(tx)? {
            match &self.machine {
                Some(machine) if !self.spread && !self.pinned => tx.notify(work_for(self.owner, machine)),
                _ => tx.notify(work(self.owner)),
            }
        }
        Ok(())
    }

    /// Whether one more of its tasks may run. Those that wait for a person leave their places to others.
    fn has_room(&self, tx: &mut Conn) -> Result<bool, StoreError> {
        let is_free = self.counts.running < self.max_concurrency;
        Ok(is_free || self.counts.running - task_sessions::asking(tx, self.id)? < self.max_concurrency)
    }
}

/// Applies an event to a locked run, stores the run with its counts, and notifies the requests that wait for it.
pub(super) fn save_run(tx: &mut Conn, run: &mut LockedRun, event: RunEvent) -> Result<(), StoreError> {
    let had_ended = run.status.is_terminal();
    run.apply_event(event, tx.operation())?;
    runs::save(tx, run)?;
    if run.status.is_terminal() && !had_ended {
        pushes::note(tx, run)?;
    }
    run.notify(tx)
}

/// The status of a task after an event.
///
/// # Errors
/// The event cannot happen in this status, which is a bug of this service.
pub(super) fn transition(tx: &Conn, from: TaskStatus, event: TaskEvent) -> Result<TaskStatus, StoreError> {
    task_transition(from, event).ok_or_else(|| {
        StoreError::bad_row(tx.operation(), format!("{event:?} cannot happen to a task that is {from:?}"))
    })
}

/// The locked run with this id.
///
/// # Errors
/// The transaction has not locked it, which is a bug of this service.
pub(super) fn locked<'a>(
    runs: &'a mut LockedRuns,
    id: RunId,
    operation: &'static str,
) -> Result<&'a mut LockedRun, StoreError> {
    runs.get_mut(&id).ok_or_else(|| StoreError::bad_row(operation, "a task of a run that is not locked was changed"))
}

/// Counts down the open dependencies of the tasks that depend on these completed tasks, and updates the counts of the runs.
pub(super) fn release_dependents(
    tx: &mut Conn,
    runs: &mut LockedRuns,
    completed: &[TaskId],
    expected: i64,
) -> Result<(), StoreError> {
    if expected > MANY_DEPENDENTS {
        allow_long_statements(tx)?;
    }
    // Tasks that change alike are written together, so that the number of statements does not grow with their number.
    let mut alike: BTreeMap<(RunId, i32, bool), Vec<TaskId>> = BTreeMap::new();
    for Dependent { run, id, open_deps, met } in tasks::dependents(tx, completed)? {
        let met = i32::try_from(met).unwrap_or(i32::MAX);
        alike.entry((run, met, open_deps == met)).or_default().push(id);
    }
    for ((run, met, is_ready), of) in alike {
        let run = locked(runs, run, tx.operation())?;
        tasks::meet_dependencies(tx, &of, met, is_ready.then_some(run.version))?;
        if is_ready {
            run.counts.ready += count(of.len());
        }
    }
    Ok(())
}

/// Fails the queued tasks of a run that depend, directly or not, on tasks that failed or were cancelled in this
/// transaction, and updates the counts of the run.
pub(super) fn fail_dependents(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    allow_long_statements(tx)?;
    let status = transition(tx, TaskStatus::Queued, TaskEvent::DependencyFailed)?;
    let error = TaskError {
        code: "DEPENDENCY_FAILED".to_owned(),
        message: "A task that this one depends on did not complete.".to_owned(),
    };
    let lost = failures::unreachable_tasks(tx, run)?;
    if !lost.is_empty() {
        tasks::fail_queued(tx, run, &lost, status, &error)?;
    }
    run.counts.queued -= count(lost.len());
    run.counts.failed += count(lost.len());
    Ok(())
}

fn allow_long_statements(tx: &mut Conn) -> Result<(), StoreError> {
    tx.extend_deadline(LONG_STATEMENT);
    if tx.is_postgres() {
        tx.batch(&format!("SET LOCAL statement_timeout = {}", LONG_STATEMENT.as_millis()))?;
    }
    Ok(())
}

/// Lets other machines take the run's tasks when its machine is lost and holds no lease of the run any more.
pub(super) fn release_machine(tx: &mut Conn, run: &mut LockedRun, lost: &str) -> Result<(), StoreError> {
    if run.machine.as_deref() == Some(lost) && !leases::holds_any(tx, run.id, lost)? {
        run.machine = None;
    }
    Ok(())
}

/// A number of tasks, as the counts of a run hold it.
pub(super) fn count(tasks: usize) -> i32 {
    i32::try_from(tasks).unwrap_or(i32::MAX)
}
