//! What happens to runs when a machine is deleted.

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::{MachineId, RunId, UserId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::attempts::{EndingAttempt, end_attempts};
use super::changes::{LockedRuns, count, fail_dependents, release_machine, save_run, transition};
use crate::domain::{AttemptEnd, TaskEvent, machine_deleted};
use crate::store::runs::LockedRun;
use crate::store::tasks::{AttemptResults, PinnedTask};
use crate::store::{leases, runners, runs, tasks};

/// How much the deletion of a machine ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedByDeletion {
    pub(crate) leases: usize,
    pub(crate) failed_tasks: usize,
}

/// Ends the leases of a machine that was deleted at this time, and fails the tasks that are pinned to it. What is newer
/// belongs to another machine that was registered with the same id.
pub(crate) async fn end_leases(
    db: &Db,
    max_losses: i32,
    owner: UserId,
    machine: MachineId,
    deleted_at: Timestamp,
) -> Result<EndedByDeletion, StoreError> {
    let name = machine.clone();
    let concerned: Vec<RunId> = db
        .write("forget a runner", move |tx| {
            runners::delete(tx, owner, name.as_str())?;
            runs::of_machine(tx, owner, name.as_str())
        })
        .await?;
    let mut all = EndedByDeletion::default();
    for id in concerned {
        let name = machine.clone();
        let ended = db
            .write("end a deleted machine's leases", move |tx| {
                match runs::lock(tx, id)?.filter(|run| !run.status.is_terminal()) {
                    Some(run) => end_in_run(tx, run, name.as_str(), deleted_at, max_losses),
                    None => Ok(EndedByDeletion::default()),
                }
            })
            .await?;
        all.leases += ended.leases;
        all.failed_tasks += ended.failed_tasks;
    }
    Ok(all)
}

fn end_in_run(
    tx: &mut Conn,
    run: LockedRun,
    machine: &str,
    deleted_at: Timestamp,
    max_losses: i32,
) -> Result<EndedByDeletion, StoreError> {
    let id = run.id;
    let attempts: Vec<EndingAttempt> = leases::lock_of_machine(tx, &run, machine, deleted_at)?
        .into_iter()
        .map(|(task, lease)| {
            let end = AttemptEnd::MachineDeleted { pinned: task.pin.as_deref() == Some(machine) };
            EndingAttempt { run: id, task, lease, end, results: AttemptResults::default() }
        })
        .collect();
    let mut runs = LockedRuns::from([(id, run)]);
    let leases = attempts.len();
    let finished = end_attempts(tx, &mut runs, attempts, max_losses)?;
    let mut failed_tasks = finished.iter().filter(|finished| finished.status == TaskStatus::Failed).count();
    for run in runs.values_mut() {
        // After the leases have ended: the end of an attempt can fail queued tasks as well.
        failed_tasks += fail_pinned(tx, run, machine, deleted_at)?;
        release_machine(tx, run, machine)?;
        save_run(tx, run, run.counts.event())?;
    }
    Ok(EndedByDeletion { leases, failed_tasks })
}

/// Fails the queued tasks that are pinned to the machine, and the tasks that depend on them.
fn fail_pinned(tx: &mut Conn, run: &mut LockedRun, machine: &str, deleted_at: Timestamp) -> Result<usize, StoreError> {
    let pinned = tasks::pinned(tx, run.id, machine, deleted_at)?;
    if pinned.is_empty() {
        return Ok(0);
    }
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Failed)?;
    let ids: Vec<_> = pinned.iter().map(|task| task.id).collect();
    tasks::fail_queued(tx, run, &ids, status, &machine_deleted())?;
    let ready = pinned.iter().filter(|PinnedTask { is_ready, .. }| *is_ready).count();
    run.counts.queued -= count(pinned.len());
    run.counts.failed += count(pinned.len());
    run.counts.ready -= count(ready);
    fail_dependents(tx, run)?;
    Ok(pinned.len())
}
