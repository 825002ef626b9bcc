//! The tombstones of machines, and the tasks that can no longer run because a machine was deleted.
//!
//! A machine is given nothing after its deletion was recorded, and the deletion finds all that it was given before:
//! - A transaction that leases a task to a machine, or takes up its attempt again, has locked an unfinished run before it
//!   looks at this table. The deletion waits for the locks of these runs after it has written its row (`runs::await_all`).
//! - A transaction that queues tasks which are pinned to a machine makes a run, or opens one that had ended. It shares the
//!   lock of the account's machines from its look at this table until its commit. The deletion holds that lock alone while
//!   it writes its row. A transaction that needs both locks takes the one of the run first.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::schema::{deleted_machines, dependencies, leases, tasks};
use crate::domain::DeletedMachine;

/// Longer than a token or a lease of the machine lives.
const KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Rows of an account that are kept. An account that registers and deletes machines endlessly has them remembered for less than [`KEPT`].
const MOST: i64 = 10_000;
/// Rows that are removed at once.
const FORGOTTEN: i64 = 100;

fn lock_name(owner: UserId) -> String {
    format!("orchestrator:machines:{owner}")
}

/// Keeps others from queueing tasks for the machines of the account, until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    tx.lock(&lock_name(owner))
}

/// Keeps machines of the account from being deleted until the transaction ends.
pub(crate) fn lock_shared(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    tx.lock_shared(&lock_name(owner))
}

/// The last deletion of a machine.
pub(crate) fn find(c: &mut Conn, owner: UserId, machine: &str) -> Result<Option<DeletedMachine>, StoreError> {
    type Row = (Timestamp, Option<Timestamp>, Option<Timestamp>);
    let row: Option<Row> = on!(c, |c| deleted_machines::table
        .find((owner.db(), machine))
        .select((deleted_machines::deleted_at, deleted_machines::ended_until, deleted_machines::registered_at))
        .first(c)
        .optional())?;
    let deleted =
        |(deleted_at, ended_until, registered_at): Row| DeletedMachine { deleted_at, ended_until, registered_at };
    Ok(row.map(deleted))
}

/// Those of these machines that were deleted and not registered again.
pub(crate) fn gone(c: &mut Conn, owner: UserId, machines: &[MachineId]) -> Result<Vec<String>, StoreError> {
    let names: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
    on!(c, |c| deleted_machines::table
        .filter(deleted_machines::owner_id.eq(owner.db()).and(deleted_machines::machine_id.eq_any(names)))
        .filter(deleted_machines::registered_at.is_null())
        .select(deleted_machines::machine_id)
        .load(c))
}

/// Records a deletion. It replaces an earlier one of a machine with the same id.
pub(crate) fn record(
    tx: &mut Conn,
    owner: UserId,
    machine: &MachineId,
    deleted: &DeletedMachine,
) -> Result<(), StoreError> {
    let values = (
        deleted_machines::deleted_at.eq(deleted.deleted_at.db()),
        deleted_machines::ended_until.eq(deleted.ended_until.db()),
        deleted_machines::registered_at.eq(deleted.registered_at.db()),
    );
    let row = (deleted_machines::owner_id.eq(owner.db()), deleted_machines::machine_id.eq(machine.as_str()), values);
    on!(tx, |c| diesel::insert_into(deleted_machines::table)
        .values(row)
        .on_conflict((deleted_machines::owner_id, deleted_machines::machine_id))
        .do_update()
        .set(values)
        .execute(c))?;
    Ok(())
}

/// Sets until when leases and tasks belong to the machine that was deleted then, unless it is known.
pub(crate) fn set_end(
    tx: &mut Conn,
    owner: UserId,
    machine: &MachineId,
    deleted_at: Timestamp,
    until: Timestamp,
) -> Result<(), StoreError> {
    let row = deleted_machines::table.find((owner.db(), machine.as_str()));
    let row = row.filter(deleted_machines::deleted_at.eq(deleted_at.db()).and(deleted_machines::ended_until.is_null()));
    on!(tx, |c| diesel::update(row).set(deleted_machines::ended_until.eq(until.db())).execute(c))?;
    Ok(())
}

/// Records when another machine with the same id was created, unless it was deleted meanwhile.
pub(crate) fn set_registered(
    tx: &mut Conn,
    owner: UserId,
    machine: &MachineId,
    of: Timestamp,
    created_at: Timestamp,
) -> Result<(), StoreError> {
    let row = deleted_machines::table.find((owner.db(), machine.as_str()));
    on!(tx, |c| diesel::update(row.filter(deleted_machines::deleted_at.eq(of.db())))
        .set(deleted_machines::registered_at.eq(created_at.db()))
        .execute(c))?;
    Ok(())
}

/// Removes the oldest rows of an account that has more than [`MOST`].
pub(crate) fn forget_surplus(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    let of_owner = deleted_machines::owner_id.eq(owner.db());
    let surplus: Option<Timestamp> = on!(tx, |c| deleted_machines::table
        .filter(of_owner)
        .order(deleted_machines::deleted_at.desc())
        .offset(MOST)
        .select(deleted_machines::deleted_at)
        .first(c)
        .optional())?;
    if let Some(newest) = surplus {
        let old = deleted_machines::table.filter(of_owner.and(deleted_machines::deleted_at.le(newest.db())));
        on!(tx, |c| diesel::delete(old).execute(c))?;
    }
    Ok(())
}

/// Removes some of the rows that are too old to matter.
pub(crate) fn forget_old(tx: &mut Conn) -> Result<(), StoreError> {
    let before = tx.now()?.minus(KEPT);
    let old: Vec<(UserId, String)> = on!(tx, |c| deleted_machines::table
        .filter(deleted_machines::deleted_at.lt(before.db()))
        .order((deleted_machines::deleted_at, deleted_machines::owner_id, deleted_machines::machine_id))
        .select((deleted_machines::owner_id, deleted_machines::machine_id))
        .limit(FORGOTTEN)
        .load(c))?;
    for (owner, machine) in &old {
        let row = deleted_machines::table.find((owner.db(), machine));
        // Its machine can have been deleted again meanwhile.
        let row = row.filter(deleted_machines::deleted_at.lt(before.db()));
        on!(tx, |c| diesel::delete(row).execute(c))?;
    }
    Ok(())
}

/// A task that needs a deleted machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StrandedTask {
    pub(crate) id: TaskId,
    /// It is queued and waits for nothing but a runner.
    pub(crate) is_ready: bool,
}

impl From<(TaskId, i32, Option<Timestamp>)> for StrandedTask {
    fn from((id, open_deps, not_before): (TaskId, i32, Option<Timestamp>)) -> Self {
        Self { id, is_ready: open_deps == 0 && not_before.is_none() }
    }
}

/// Some queued tasks of a run that are pinned to some of these machines. With `until`, only those that were created until
/// then.
pub(crate) fn pinned(
    tx: &mut Conn,
    (owner, run): (UserId, RunId),
    machines: &[String],
    until: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<StrandedTask>, StoreError> {
    let rows: Vec<(TaskId, i32, Option<Timestamp>)> = on!(tx, |c| {
        let mut query = tasks::table
            .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
            .filter(tasks::machine_id.eq_any(machines))
            .filter(tasks::status.eq(TaskStatus::Queued.as_str()))
            .select((tasks::id, tasks::open_deps, tasks::not_before))
            .limit(rows(limit))
            .into_boxed();
        if let Some(until) = until {
            query = query.filter(tasks::created_at.le(until.db()));
        }
        query.load(c)
    })?;
    Ok(rows.into_iter().map(StrandedTask::from).collect())
}

/// Whose files are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need<'a> {
    /// Those on this machine, by all tasks.
    FilesOn(&'a str),
    /// Those on any machine, by these tasks.
    FilesOf(&'a [TaskId]),
}

/// Some tasks of a run in some states that are not pinned to a machine, and that depend on a task which completed on a
/// deleted machine.
pub(crate) fn without_files(
    tx: &mut Conn,
    (owner, run): (UserId, RunId),
    states: &[TaskStatus],
    need: Need<'_>,
    limit: usize,
) -> Result<Vec<StrandedTask>, StoreError> {
    let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let of_lease =
        deleted_machines::owner_id.eq(leases::owner_id).and(deleted_machines::machine_id.eq(leases::machine_id)).and(
            deleted_machines::ended_until.is_null().or(leases::granted_at.nullable().le(deleted_machines::ended_until)),
        );
    let later = tasks::id.eq(dependencies::task_id).and(tasks::owner_id.eq(dependencies::owner_id));
    let earlier = leases::task_id.eq(dependencies::depends_on).and(leases::owner_id.eq(dependencies::owner_id));
    let rows: Vec<(TaskId, i32, Option<Timestamp>)> = on!(tx, |c| {
        let mut query = dependencies::table
            .inner_join(tasks::table.on(later))
            .inner_join(leases::table.on(earlier))
            .inner_join(deleted_machines::table.on(of_lease))
            .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
            .filter(tasks::machine_id.is_null())
            .filter(tasks::status.eq_any(&states))
            .filter(leases::outcome.eq(TaskStatus::Completed.as_str()))
            .select((tasks::id, tasks::open_deps, tasks::not_before))
            .distinct()
            .limit(rows(limit))
            .into_boxed();
        query = match need {
            Need::FilesOn(machine) => query.filter(leases::machine_id.eq(machine)),
            Need::FilesOf(of) => query.filter(tasks::id.eq_any(of.iter().map(|id| id.db()).collect::<Vec<DbId>>())),
        };
        query.load(c)
    })?;
    Ok(rows.into_iter().map(StrandedTask::from).collect())
}

fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
