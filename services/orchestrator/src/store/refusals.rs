//! The tasks that machines handed back, because they cannot run them.

use std::collections::HashMap;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::{Provider, Refusal, TaskError};
use ensemble_types::time::Timestamp;

use super::schema::task_refusals;

/// The refusals of these providers end when the machine offers the provider again: `PROVIDER_NOT_AVAILABLE` and
/// `PROVIDER_NOT_SIGNED_IN`.
const OF_PROVIDERS: &str = "PROVIDER_%";

/// A task that a machine hands back.
#[derive(Clone, Debug)]
pub(crate) struct NewRefusal<'a> {
    pub(crate) task: TaskId,
    pub(crate) fence: i32,
    pub(crate) run: RunId,
    pub(crate) owner: UserId,
    pub(crate) machine: &'a str,
    pub(crate) provider: Provider,
    pub(crate) error: &'a TaskError,
    pub(crate) at: Timestamp,
}

pub(crate) fn insert(tx: &mut Conn, new: &NewRefusal<'_>) -> Result<(), StoreError> {
    let row = (
        task_refusals::task_id.eq(new.task.db()),
        task_refusals::fence.eq(new.fence),
        task_refusals::run_id.eq(new.run.db()),
        task_refusals::owner_id.eq(new.owner.db()),
        task_refusals::machine_id.eq(new.machine),
        task_refusals::provider.eq(new.provider.as_str()),
        task_refusals::code.eq(&new.error.code),
        task_refusals::message.eq(&new.error.message),
        task_refusals::is_void.eq(false),
        task_refusals::refused_at.eq(new.at.db()),
    );
    on!(tx, |c| diesel::insert_into(task_refusals::table).values(row).execute(c)).map(drop)
}

/// The machines that handed a task back since it was submitted or retried, each time once, and whether the refusal stands.
pub(crate) fn of_task(c: &mut Conn, owner: UserId, task: TaskId) -> Result<Vec<(String, bool)>, StoreError> {
    let rows: Vec<(String, bool)> = on!(c, |c| task_refusals::table
        .filter(task_refusals::task_id.eq(task.db()).and(task_refusals::owner_id.eq(owner.db())))
        .select((task_refusals::machine_id, task_refusals::is_void))
        .load(c))?;
    Ok(rows.into_iter().map(|(machine, is_void)| (machine, !is_void)).collect())
}

/// The refusals of these tasks that stand, oldest first.
pub(crate) fn standing(
    c: &mut Conn,
    owner: UserId,
    of: &[TaskId],
) -> Result<HashMap<TaskId, Vec<Refusal>>, StoreError> {
    let mut found: HashMap<TaskId, Vec<Refusal>> = HashMap::new();
    if of.is_empty() {
        return Ok(found);
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, String, String, String, Timestamp)> = on!(c, |c| task_refusals::table
        .filter(task_refusals::task_id.eq_any(ids).and(task_refusals::owner_id.eq(owner.db())))
        .filter(task_refusals::is_void.eq(false))
        .order((task_refusals::task_id, task_refusals::fence))
        .select((
            task_refusals::task_id,
            task_refusals::machine_id,
            task_refusals::code,
            task_refusals::message,
            task_refusals::refused_at,
        ))
        .load(c))?;
    for (task, machine, code, message, at) in rows {
        let machine_id: MachineId = machine.parse().map_err(|error| StoreError::bad_row(c.operation(), error))?;
        found.entry(task).or_default().push(Refusal { machine_id, code, message, at });
    }
    Ok(found)
}

/// A machine has begun to offer a provider, so it may get the tasks again that it refused for want of it.
pub(crate) fn void_of_provider(
    tx: &mut Conn,
    owner: UserId,
    machine: &str,
    provider: Provider,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(task_refusals::table)
        .filter(task_refusals::owner_id.eq(owner.db()).and(task_refusals::machine_id.eq(machine)))
        .filter(task_refusals::provider.eq(provider.as_str()).and(task_refusals::code.like(OF_PROVIDERS)))
        .filter(task_refusals::is_void.eq(false))
        .set(task_refusals::is_void.eq(true))
        .execute(c))
    .map(drop)
}

/// Forgets the refusals of tasks that their owner retries.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = task_refusals::table.filter(task_refusals::task_id.eq_any(ids));
    on!(tx, |c| diesel::delete(rows.filter(task_refusals::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
