//! Changes of a locked run and of its tasks.

use std::collections::BTreeMap;

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::RunId;
use ensemble_types::runs::TaskStatus;

use super::pushes;
use super::topics::{notify_run, run_ended, work, work_for};
use crate::domain::{RunEvent, TaskEvent, run_transition, task_transition};
use crate::store::runs::LockedRun;
use crate::store::{leases, runs, task_sessions};

/// The runs that a transaction has locked.
pub(super) type LockedRuns = BTreeMap<RunId, LockedRun>;

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
    if run.is_cancelling() {
        // No runner gets a task of it any more, also of those that are not cancelled yet.
        run.counts.ready = 0;
    }
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
