//! What tasks changed, what becomes of it, and the orders about it to the machines that have the worktrees.

use std::collections::HashMap;

use diesel::dsl::case_when;
use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::changes::{ChangedFile, ReportedChanges};
use ensemble_types::ids::{MachineId, OrderId, RunId, TaskId, UserId};
use ensemble_types::leases::{Order, OrderKind};
use ensemble_types::runs::{ChangesState, TaskChanges};
use ensemble_types::time::Timestamp;
use serde::Serialize;

use super::columns::ChangesStateColumn;
use super::diffs;
use super::runs::LockedRun;
use super::schema::{runs, task_changes, tasks};
use super::signatures::{self, About};
use crate::domain::RunnerRequest;

/// Orders in one answer.
const MOST_ORDERS: i64 = 64;

/// A list, as its column holds it.
pub(crate) fn json(list: &[impl Serialize]) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// The changes of a task whose run is locked.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = task_changes)]
pub(crate) struct LockedChanges {
    task_id: TaskId,
    owner_id: UserId,
    machine_id: String,
    state: ChangesStateColumn,
    state_before: Option<ChangesStateColumn>,
    order_until: Option<Timestamp>,
    conflicted: String,
}

impl LockedChanges {
    pub(crate) fn machine(&self) -> &str {
        &self.machine_id
    }

    pub(crate) fn state(&self) -> ChangesState {
        self.state.into()
    }

    /// The state when the last order was given.
    pub(crate) fn before(&self) -> ChangesState {
        self.state_before.unwrap_or(self.state).into()
    }

    /// How many bytes more a list of files takes than the one that is stored.
    pub(crate) fn more_than_stored(&self, files: &[String]) -> i64 {
        let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
        length(&json(files)) - length(&self.conflicted)
    }

    /// Whether its order was not carried out in time.
    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        self.order_until.is_some_and(|until| until <= now)
    }
}

/// Records what the last attempt of a task changed.
pub(crate) fn record(
    tx: &mut Conn,
    run: &LockedRun,
    task: TaskId,
    machine: &str,
    changes: &ReportedChanges,
) -> Result<(), StoreError> {
    use diesel::query_dsl::methods::FilterDsl;
    let state = if changes.kept { ChangesState::Kept } else { ChangesState::None };
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let values = (
        task_changes::machine_id.eq(machine),
        task_changes::state.eq(state.as_str()),
        task_changes::files.eq(json(&changes.files)),
        task_changes::file_count.eq(i32::try_from(changes.file_count).unwrap_or(i32::MAX)),
        task_changes::added.eq(number(changes.added)),
        task_changes::removed.eq(number(changes.removed)),
        task_changes::uncommitted.eq(i32::try_from(changes.uncommitted).unwrap_or(i32::MAX)),
        task_changes::conflicted.eq("[]"),
        task_changes::is_unknown.eq(changes.unknown),
        task_changes::is_partial.eq(changes.partial),
        task_changes::notes.eq(json(&changes.notes)),
        task_changes::failure.eq(None::<String>),
        task_changes::order_id.eq(None::<DbId>),
        task_changes::order_until.eq(None::<DbTime>),
    );
    // That earlier changes were applied is not forgotten.
    let applied = ChangesState::Applied.as_str();
    let was_applied = task_changes::state_before.eq(applied).or(task_changes::state.eq(applied).nullable());
    let before = case_when(was_applied, Some(applied)).otherwise(None::<&str>);
    let row = (
        task_changes::task_id.eq(task.db()),
        task_changes::run_id.eq(run.id.db()),
        task_changes::owner_id.eq(run.owner.db()),
        values.clone(),
    );
    on!(tx, |c| diesel::insert_into(task_changes::table)
        .values(&row)
        .on_conflict(task_changes::task_id)
        .do_update()
        .set((values.clone(), task_changes::state_before.eq(before)))
        .filter(task_changes::owner_id.eq(run.owner.db()))
        .execute(c))
    .map(drop)
}

/// The changes of a task. The caller has locked its run.
pub(crate) fn of_task(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<Option<LockedChanges>, StoreError> {
    let row = task_changes::table.find(task.db()).filter(task_changes::owner_id.eq(owner.db()));
    on!(tx, |c| row.select(LockedChanges::as_select()).first(c).optional())
}

/// The changes that an order of a machine was about.
pub(crate) fn of_order(
    c: &mut Conn,
    owner: UserId,
    machine: &MachineId,
    order: OrderId,
) -> Result<Option<(RunId, TaskId)>, StoreError> {
    on!(c, |c| task_changes::table
        .filter(task_changes::order_id.eq(order.db()))
        .filter(task_changes::owner_id.eq(owner.db()).and(task_changes::machine_id.eq(machine.as_str())))
        .select((task_changes::run_id, task_changes::task_id))
        .first(c)
        .optional())
}

/// Opens an order. The changes have this state until it is answered.
pub(crate) fn order(
    tx: &mut Conn,
    changes: &LockedChanges,
    state: ChangesState,
    until: Timestamp,
) -> Result<(), StoreError> {
    let row = task_changes::table.find(changes.task_id.db());
    on!(tx, |c| diesel::update(row.filter(task_changes::owner_id.eq(changes.owner_id.db())))
        .set((
            task_changes::state.eq(state.as_str()),
            task_changes::state_before.eq(changes.state().as_str()),
            task_changes::order_id.eq(OrderId::generate().db()),
            task_changes::order_until.eq(until.db()),
            task_changes::order_taken.eq(false),
        ))
        .execute(c))
    .map(drop)
}

/// Closes the order of these changes, if one is open. A result has the files that prevented the changes, and the reason
/// why the machine could not carry out the order.
pub(crate) fn settle(
    tx: &mut Conn,
    owner: UserId,
    task: TaskId,
    state: ChangesState,
    result: Option<(&[String], Option<&str>)>,
) -> Result<(), StoreError> {
    let row = task_changes::table.find(task.db()).filter(task_changes::owner_id.eq(owner.db()));
    on!(tx, |c| diesel::update(row)
        .set((
            task_changes::state.eq(state.as_str()),
            task_changes::order_until.eq(None::<DbTime>),
            result
                .map(|(files, failure)| (task_changes::conflicted.eq(json(files)), task_changes::failure.eq(failure))),
        ))
        .execute(c))
    .map(drop)
}

/// Marks a task as changed, for those who wait for changes of its run. The run keeps its state.
pub(crate) fn touch(tx: &mut Conn, run: &LockedRun, task: TaskId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(runs::table.find(run.id.db()))
        .set((runs::version.eq(run.version), runs::updated_at.eq(run.now.db())))
        .execute(c))?;
    let row = tasks::table.find(task.db()).filter(tasks::owner_id.eq(run.owner.db()));
    on!(tx, |c| diesel::update(row).set(tasks::version.eq(run.version)).execute(c)).map(drop)
}

/// The open orders that a machine reports as taken for the first time.
pub(crate) fn newly_taken(c: &mut Conn, by: &RunnerRequest) -> Result<Vec<OrderId>, StoreError> {
    let taken: Vec<DbId> = by.taken_orders.iter().map(|id| id.db()).collect();
    let found: Vec<Option<OrderId>> = on!(c, |c| task_changes::table
        .filter(task_changes::owner_id.eq(by.owner.db()).and(task_changes::machine_id.eq(by.machine.as_str())))
        .filter(task_changes::order_id.eq_any(taken).and(task_changes::order_until.is_not_null()))
        .filter(task_changes::order_taken.eq(false))
        .select(task_changes::order_id)
        .load(c))?;
    Ok(found.into_iter().flatten().collect())
}

/// Records that machines carry orders out.
pub(crate) fn set_taken(tx: &mut Conn, orders: &[OrderId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = orders.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(task_changes::table.filter(task_changes::order_id.eq_any(ids)))
        .set(task_changes::order_taken.eq(true))
        .execute(c))
    .map(drop)
}

/// The open orders to a machine, without those that it is carrying out.
pub(crate) fn open_orders(c: &mut Conn, to: &RunnerRequest) -> Result<Vec<Order>, StoreError> {
    let taken: Vec<DbId> = to.taken_orders.iter().map(|id| id.db()).collect();
    let rows: Vec<(Option<OrderId>, RunId, TaskId, ChangesStateColumn)> = on!(c, |c| task_changes::table
        .filter(task_changes::owner_id.eq(to.owner.db()).and(task_changes::machine_id.eq(to.machine.as_str())))
        .filter(task_changes::order_until.is_not_null().and(task_changes::order_id.ne_all(taken)))
        .order(task_changes::order_id)
        .limit(MOST_ORDERS)
        .select((task_changes::order_id, task_changes::run_id, task_changes::task_id, task_changes::state))
        .load(c))?;
    let ids: Vec<TaskId> = rows.iter().map(|(_, _, task, _)| *task).collect();
    let mut signed = signatures::of_tasks(c, to.owner, &ids, About::Order)?;
    let order = |(id, run_id, task_id, state): (Option<OrderId>, RunId, TaskId, ChangesStateColumn)| {
        let kind = match ChangesState::from(state) {
            ChangesState::Applying => OrderKind::Apply,
            ChangesState::Discarding => OrderKind::Discard,
            _ => return None,
        };
        let signed = signed.remove(&task_id);
        Some(Order { id: id?.to_string(), kind, run_id, task_id, lease_id: None, fence: None, signed })
    };
    Ok(rows.into_iter().filter_map(order).collect())
}

/// Closes the open orders about tasks that their owner retries. The changes are what they were before.
pub(crate) fn withdraw_orders(tx: &mut Conn, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(task_changes::table)
        .filter(task_changes::task_id.eq_any(ids).and(task_changes::order_until.is_not_null()))
        .set((
            task_changes::state.eq(task_changes::state_before.assume_not_null()),
            task_changes::order_until.eq(None::<DbTime>),
            task_changes::order_id.eq(None::<DbId>),
        ))
        .execute(c))
    .map(drop)
}

/// Some tasks with overdue orders, with their runs.
pub(crate) fn overdue(c: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<(RunId, TaskId)>, StoreError> {
    on!(c, |c| task_changes::table
        .filter(task_changes::order_until.le(now.db()))
        .order(task_changes::order_until)
        .select((task_changes::run_id, task_changes::task_id))
        .limit(limit)
        .load(c))
}

/// The tasks whose changes are on a machine, with their runs, in the order of the runs.
pub(crate) fn on_machine(c: &mut Conn, owner: UserId, machine: &MachineId) -> Result<Vec<(RunId, TaskId)>, StoreError> {
    let states: Vec<&str> = ChangesState::ALL
        .into_iter()
        .filter(|state| crate::domain::lost_with_machine(*state))
        .map(ChangesState::as_str)
        .collect();
    on!(c, |c| task_changes::table
        .filter(task_changes::owner_id.eq(owner.db()).and(task_changes::machine_id.eq(machine.as_str())))
        .filter(task_changes::state.eq_any(&states))
        .order(task_changes::run_id)
        .select((task_changes::run_id, task_changes::task_id))
        .load(c))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = task_changes)]
struct ViewRow {
    task_id: TaskId,
    machine_id: String,
    state: ChangesStateColumn,
    files: String,
    file_count: i32,
    added: i64,
    removed: i64,
    uncommitted: i32,
    conflicted: String,
    order_until: Option<Timestamp>,
    order_taken: bool,
    state_before: Option<ChangesStateColumn>,
    is_unknown: bool,
    is_partial: bool,
    notes: String,
    failure: Option<String>,
}

/// What a task changed, and what decides whether an order about it waits for its machine.
pub(crate) struct FoundChanges {
    pub(crate) changes: TaskChanges,
    pub(crate) machine: String,
    /// Until when its open order waits, and whether the machine carries it out.
    pub(crate) order: Option<(Timestamp, bool)>,
}

/// Those of these tasks that have any.
pub(crate) fn of_tasks(
    c: &mut Conn,
    owner: UserId,
    of: &[TaskId],
) -> Result<HashMap<TaskId, FoundChanges>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<ViewRow> =
        on!(c, |c| task_changes::table.filter(task_changes::task_id.eq_any(ids)).select(ViewRow::as_select()).load(c))?;
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let truncated = diffs::truncated(c, owner, of)?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        let unreadable = |error| StoreError::bad_row(c.operation(), error);
        let files: Vec<ChangedFile> = serde_json::from_str(&row.files).map_err(unreadable)?;
        let conflicted = serde_json::from_str(&row.conflicted).map_err(unreadable)?;
        let state = ChangesState::from(row.state);
        let before = row.state_before.map(ChangesState::from);
        let changes = TaskChanges {
            state,
            was_applied: [Some(state), before].contains(&Some(ChangesState::Applied)),
            waiting_for: None,
            files,
            file_count: u32::try_from(row.file_count).unwrap_or(0),
            added: u64::try_from(row.added).unwrap_or(0),
            removed: u64::try_from(row.removed).unwrap_or(0),
            uncommitted: u32::try_from(row.uncommitted).unwrap_or(0),
            conflicted,
            unknown: row.is_unknown,
            notes: serde_json::from_str(&row.notes).map_err(unreadable)?,
            failure: row.failure,
            diff_truncated: row.is_partial || truncated.contains(&row.task_id),
        };
        let order = row.order_until.map(|until| (until, row.order_taken));
        found.insert(row.task_id, FoundChanges { changes, machine: row.machine_id, order });
    }
    Ok(found)
}

/// Forgets those of tasks that are deleted, with their diffs.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    diffs::forget(tx, owner, of)?;
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(task_changes::table.filter(task_changes::task_id.eq_any(ids))).execute(c)).map(drop)
}
