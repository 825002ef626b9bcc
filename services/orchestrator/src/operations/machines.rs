//! What happens to runs when a machine is deleted, and when another one is registered with its id.

use std::collections::HashSet;

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::attempts::{EndingAttempt, end_attempts};
use super::changes::{LockedRuns, count, release_machine, save_run, transition};
use super::dependents::{Share, tell};
use super::task_changes;
use crate::clients::Machines;
use crate::domain::{AttemptEnd, MachineNeed, TaskEvent, machine_deleted, new_deletion};
use crate::error::Error;
use crate::store::deleted_machines::{self, Need, StrandedTask};
use crate::store::ended_tasks::Ended;
use crate::store::runs::LockedRun;
use crate::store::tasks::AttemptResults;
use crate::store::{holds, leases, runners, runs, tasks};

/// How much the deletion of a machine ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndedByDeletion {
    pub(crate) leases: usize,
    pub(crate) failed_tasks: usize,
}

/// Queued tasks that one transaction fails for one reason at most.
const FAILED_AT_ONCE: usize = 500;

/// Ends the leases of a machine that was deleted at this time, and fails the tasks that need it.
///
/// The deletion is recorded first: from that commit on, nothing is given to the machine. Then the runs that it has
/// something to do with are changed one by one. A repeated call finishes what an interrupted one left.
pub(crate) async fn end_leases(
    db: &Db,
    machines: &Machines,
    max_losses: i32,
    owner: UserId,
    machine: MachineId,
    deleted_at: Timestamp,
) -> Result<EndedByDeletion, Error> {
    // When the report comes late, another machine can have the id already.
    let registered_at = machines.created_at(owner, &machine).await?;
    record_deletion(db, owner, machine.clone(), deleted_at, registered_at).await?;
    let (until, concerned) = find_runs(db, owner, machine.clone()).await?;
    let mut all = EndedByDeletion::default();
    for id in concerned {
        let mut has_more = true;
        while has_more {
            let name = machine.clone();
            let ended = db.write("end a deleted machine's leases", move |tx| {
                match runs::lock(tx, id)?.filter(|run| !run.status.is_terminal()) {
                    Some(run) => end_in_run(tx, run, name.as_str(), until, max_losses),
                    None => Ok((EndedByDeletion::default(), false)),
                }
            });
            let (ended, more) = ended.await?;
            all.leases += ended.leases;
            all.failed_tasks += ended.failed_tasks;
            has_more = more;
        }
    }
    task_changes::lose(db, owner, machine).await?;
    db.write("forget old deletions", move |tx| {
        deleted_machines::forget_surplus(tx, owner)?;
        deleted_machines::forget_old(tx)
    })
    .await?;
    Ok(all)
}

async fn record_deletion(
    db: &Db,
    owner: UserId,
    machine: MachineId,
    deleted_at: Timestamp,
    registered_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    db.write("record a deleted machine", move |tx| {
        deleted_machines::lock(tx, owner)?;
        let known = deleted_machines::find(tx, owner, machine.as_str())?;
        if let Some(new) = new_deletion(known, deleted_at, registered_at) {
            deleted_machines::record(tx, owner, &machine, &new)?;
            runners::delete(tx, owner, machine.as_str())?;
            holds::forget(tx, owner, machine.as_str())?;
        }
        Ok(())
    })
    .await
}

/// Returns until when leases and tasks belong to a deleted machine, and the runs that may have some of them.
async fn find_runs(db: &Db, owner: UserId, machine: MachineId) -> Result<(Timestamp, Vec<RunId>), StoreError> {
    db.write("look for a deleted machine's runs", move |tx| {
        let Some(deleted) = deleted_machines::find(tx, owner, machine.as_str())? else {
            return Err(StoreError::bad_row(tx.operation(), "a deletion was not recorded"));
        };
        // Until here, a transaction could give the machine something without having seen that it was deleted.
        runs::await_all(tx, owner)?;
        let now = tx.now()?;
        deleted_machines::set_end(tx, owner, &machine, deleted.deleted_at, now)?;
        // A repeated call for the same deletion can have been faster.
        let ended_until = deleted_machines::find(tx, owner, machine.as_str())?.and_then(|deleted| deleted.ended_until);
        Ok((ended_until.unwrap_or(now), runs::of_machine(tx, owner, machine.as_str())?))
    })
    .await
}

/// Returns what it ended, and whether there is more to fail in the run.
fn end_in_run(
    tx: &mut Conn,
    run: LockedRun,
    machine: &str,
    until: Timestamp,
    max_losses: i32,
) -> Result<(EndedByDeletion, bool), StoreError> {
    let (id, owner) = (run.id, run.owner);
    // Tasks of a run on one machine find there the files of the tasks before them. Those of a spread run do not expect it.
    let has_files = !run.spread && run.machine.as_deref() == Some(machine);
    let without_files = |tx: &mut Conn, states: &[TaskStatus]| {
        if has_files {
            deleted_machines::without_files(tx, (owner, id), states, Need::FilesOn(machine), FAILED_AT_ONCE)
        } else {
            Ok(Vec::new())
        }
    };
    let held = without_files(tx, &[TaskStatus::Dispatching, TaskStatus::Running])?;
    let held: HashSet<TaskId> = held.into_iter().map(|task| task.id).collect();
    let attempts: Vec<EndingAttempt> = leases::lock_of_machine(tx, &run, machine, until)?
        .into_iter()
        .map(|(task, lease)| {
            let need = if task.pin.as_deref() == Some(machine) {
                Some(MachineNeed::Pinned)
            } else {
                held.contains(&task.id).then_some(MachineNeed::Files)
            };
            let end = AttemptEnd::MachineDeleted { need };
            EndingAttempt { run: id, task, lease, end, results: AttemptResults::default() }
        })
        .collect();
    let mut runs = LockedRuns::from([(id, run)]);
    let leases = attempts.len();
    let finished = end_attempts(tx, &mut runs, attempts, max_losses)?;
    let mut failed_tasks = finished.iter().filter(|finished| finished.status == TaskStatus::Failed).count();
    let mut has_more = false;
    for run in runs.values_mut() {
        // After the leases have ended: the end of an attempt can fail queued tasks as well.
        let pinned = deleted_machines::pinned(tx, (owner, id), &[machine.to_owned()], Some(until), FAILED_AT_ONCE)?;
        failed_tasks += fail_queued(tx, run, &pinned, MachineNeed::Pinned)?;
        let stranded = without_files(tx, &[TaskStatus::Queued])?;
        failed_tasks += fail_queued(tx, run, &stranded, MachineNeed::Files)?;
        has_more |= [&pinned, &stranded].iter().any(|failed| failed.len() >= FAILED_AT_ONCE);
        release_machine(tx, run, machine)?;
        save_run(tx, run, run.counts.event())?;
    }
    Ok((EndedByDeletion { leases, failed_tasks }, has_more))
}

/// Fails queued tasks that need a deleted machine, and the tasks that depend on them. Returns how many need it.
fn fail_queued(
    tx: &mut Conn,
    run: &mut LockedRun,
    stranded: &[StrandedTask],
    need: MachineNeed,
) -> Result<usize, StoreError> {
    if stranded.is_empty() {
        return Ok(0);
    }
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Failed)?;
    let ids: Vec<TaskId> = stranded.iter().map(|task| task.id).collect();
    tasks::fail_queued(tx, run, &ids, status, &machine_deleted(need))?;
    run.counts.queued -= count(stranded.len());
    run.counts.failed += count(stranded.len());
    run.counts.ready -= count(stranded.iter().filter(|task| task.is_ready).count());
    let ended = ids.into_iter().map(|id| Ended { id, has_completed: false, notified_until: None }).collect();
    tell(tx, run, ended, &mut Share::default())?;
    Ok(stranded.len())
}

/// Fails those tasks of a run that were queued again just now and that need machines which are gone. `pins` are the machines that
/// they are pinned to.
pub(super) fn fail_stranded(
    tx: &mut Conn,
    run: &mut LockedRun,
    requeued: &[TaskId],
    pins: &[MachineId],
) -> Result<(), StoreError> {
    deleted_machines::lock_shared(tx, run.owner)?;
    let gone = deleted_machines::gone(tx, run.owner, pins)?;
    if !gone.is_empty() {
        let pinned = deleted_machines::pinned(tx, (run.owner, run.id), &gone, None, requeued.len())?;
        fail_queued(tx, run, &pinned, MachineNeed::Pinned)?;
    }
    if !run.spread {
        let states = [TaskStatus::Queued];
        let (of, need) = ((run.owner, run.id), Need::FilesOf(requeued));
        let stranded = deleted_machines::without_files(tx, of, &states, need, requeued.len())?;
        fail_queued(tx, run, &stranded, MachineNeed::Files)?;
    }
    Ok(())
}

/// Asks machine-registry about those of these machines that were deleted, because they can have been registered again.
/// Returns those that are gone.
pub(super) async fn find_gone(
    db: &Db,
    machines: &Machines,
    owner: UserId,
    named: Vec<MachineId>,
) -> Result<HashSet<MachineId>, Error> {
    let mut gone = HashSet::new();
    if named.is_empty() {
        return Ok(gone);
    }
    let known = db.read("look for deleted machines", move |c| deleted_machines::gone(c, owner, &named)).await?;
    for machine in known {
        let machine: MachineId =
            machine.parse().map_err(|error| StoreError::bad_row("look for deleted machines", error))?;
        if !was_registered_again(db, machines, owner, &machine).await? {
            machines.forget(owner, &machine);
            gone.insert(machine);
        }
    }
    Ok(gone)
}

/// Whether another machine was registered with the id of a deleted one. If so, it is given tasks from now on.
pub(super) async fn was_registered_again(
    db: &Db,
    machines: &Machines,
    owner: UserId,
    machine: &MachineId,
) -> Result<bool, Error> {
    let Some(created_at) = machines.created_at(owner, machine).await? else { return Ok(false) };
    let machine = machine.clone();
    let another = db
        .write("record a machine that was registered again", move |tx| {
            let Some(deleted) = deleted_machines::find(tx, owner, machine.as_str())? else { return Ok(true) };
            let may_be_replaced = deleted.may_be_replaced(created_at);
            if may_be_replaced && deleted.is_gone() {
                deleted_machines::set_registered(tx, owner, &machine, deleted.deleted_at, created_at)?;
            }
            Ok::<_, StoreError>(may_be_replaced)
        })
        .await?;
    Ok(another)
}
