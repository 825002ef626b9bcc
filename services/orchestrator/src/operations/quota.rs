//! Machines that wait for a provider whose usage limit is reached.

use ensemble_store_kit::{Conn, Db, StoreError};
use ensemble_types::time::Timestamp;

use super::topics::work_for;
use crate::domain::{AttemptEnd, has_waited_too_often, hold_until};
use crate::store::leases::LockedLease;
use crate::store::runs::LockedRun;
use crate::store::tasks::LockedTask;
use crate::store::{costs, deleted_machines, holds, tasks};

/// The machine of a lease waits for the provider of the task.
pub(super) fn hold(
    tx: &mut Conn,
    run: &LockedRun,
    task: &LockedTask,
    lease: &LockedLease,
    resume_at: Option<Timestamp>,
) -> Result<AttemptEnd, StoreError> {
    // The caller has refused a time that is too far ahead.
    let wanted = hold_until(run.now, resume_at).unwrap_or(run.now);
    let deleted = deleted_machines::find(tx, run.owner, &lease.machine_id)?;
    let until = if deleted.is_some_and(|deleted| deleted.is_gone()) {
        run.now
    } else {
        holds::hold(tx, (run.owner, &lease.machine_id, task.provider), wanted)?
    };
    let is_last = has_waited_too_often(costs::count_quota_wait(tx, run.owner, task.id)?);
    tracing::info!(task.id = %task.id, machine.id = %lease.machine_id, provider = %task.provider, %until,
        "A machine waits for a provider");
    Ok(AttemptEnd::Quota { wait: until.since(run.now), is_last })
}

/// Ends the waits of machines that keep queued tasks of a locked run from starting. A person knows better. False when there
/// are none.
pub(super) fn lift(tx: &mut Conn, run: &LockedRun) -> Result<bool, StoreError> {
    let all = holds::of_account(tx, run.owner)?;
    if all.is_empty() {
        return Ok(false);
    }
    let waiting = tasks::waiting_for(tx, run)?;
    let of_run = run.machine.as_deref().filter(|_| !run.spread);
    let mut lifted = false;
    for (machine, provider, _) in all {
        let waits = |pin: &Option<String>| pin.as_deref().or(of_run).is_none_or(|needed| needed == machine);
        if waiting.iter().any(|(of, pin)| *of == provider && waits(pin)) {
            lifted |= holds::lift(tx, run.owner, &machine, provider)?;
            tx.notify(work_for(run.owner, &machine));
        }
    }
    Ok(lifted)
}

/// Ends the waits whose time has come.
pub(crate) async fn end_due(db: &Db) -> Result<(), StoreError> {
    db.write("end waits for providers", |tx| {
        for (owner, machine) in holds::end_due(tx)? {
            tracing::info!(user.id = %owner, machine.id = machine, "A machine no longer waits for a provider");
            tx.notify(work_for(owner, &machine));
        }
        Ok(())
    })
    .await
}
