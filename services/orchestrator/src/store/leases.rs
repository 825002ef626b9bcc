//! The rows of leases: granted, extended, and ended.

use std::collections::{BTreeSet, HashMap};

use diesel::dsl::{count_star, not};
use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::changes::LeaseWaitsFor;
use ensemble_types::ids::{LeaseId, MachineId, RunId, TaskId, UserId};
use ensemble_types::leases::{Order, OrderKind};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::columns::{TaskStatusColumn, WaitsForColumn};
use super::runs::{self, LockedRun};
use super::schema::{leases, runs as runs_table, tasks as tasks_table};
use super::tasks::{self, LockedTask};
use crate::domain::LeaseCall;

/// Orders in one answer. A runner has at most 64 attempts.
const MOST_ORDERS: i64 = 64;

/// The lease of an attempt.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = leases)]
pub(crate) struct LockedLease {
    pub(crate) id: LeaseId,
    pub(crate) machine_id: String,
    /// Its fence.
    pub(crate) attempt: i32,
    pub(crate) granted_at: Timestamp,
    pub(crate) beaten_at: Option<Timestamp>,
    pub(crate) expires_at: Timestamp,
    pub(crate) timeout_at: Option<Timestamp>,
    pub(crate) cancel_requested: bool,
    pub(crate) end_reason: Option<String>,
    outcome: Option<TaskStatusColumn>,
    output_length: i64,
    output_bytes: i64,
    output_counted: i64,
    waiting_for: Option<WaitsForColumn>,
    waiting_since: Option<Timestamp>,
}

impl LockedLease {
    /// What the attempt waits for before it begins, and since when.
    pub(crate) fn waits(&self) -> Option<(LeaseWaitsFor, Timestamp)> {
        self.waiting_for.map(LeaseWaitsFor::from).zip(self.waiting_since)
    }

    pub(crate) fn set_waits(&mut self, waits: Option<(LeaseWaitsFor, Timestamp)>) {
        self.waiting_for = waits.map(|(what, _)| what.into());
        self.waiting_since = waits.map(|(_, since)| since);
    }

    /// Output arrived, so the agent was started.
    pub(crate) fn has_output(&self) -> bool {
        self.output_length > 0
    }

    /// What the task became when the runner's report ended the lease.
    pub(crate) fn outcome(&self) -> Option<TaskStatus> {
        self.outcome.map(TaskStatus::from)
    }

    /// What the stored output counts that the run's `stored_bytes` does not contain yet. [`end`] records that it does.
    pub(crate) fn uncounted_output(&self) -> i64 {
        self.output_bytes - self.output_counted
    }
}

/// Locks leases with their tasks and their runs, the runs in the order of their ids. The caller checks the owner.
pub(crate) fn lock_all(
    tx: &mut Conn,
    ids: &[LeaseId],
) -> Result<Vec<(LockedRun, LockedTask, LockedLease)>, StoreError> {
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    // PostgreSQL locks the rows of each result in the order of the tables. The run must be the first, as in every other
    // transaction, or two transactions deadlock.
    let task = tasks_table::id.eq(leases::task_id).and(tasks_table::owner_id.eq(leases::owner_id));
    let query = runs_table::table
        .inner_join(leases::table.on(leases::run_id.eq(runs_table::id)))
        .inner_join(tasks_table::table.on(task))
        .filter(leases::id.eq_any(ids))
        .order((runs_table::id, tasks_table::id));
    let rows: Vec<(runs::LockedRow, tasks::LockedRow, LockedLease, Timestamp)> = load_locked!(
        tx,
        query,
        (runs::LockedRow::as_select(), tasks::LockedRow::as_select(), LockedLease::as_select(), now())
    )?;
    Ok(rows.into_iter().map(|(run, task, lease, now)| (run.locked_at(now), task.into(), lease)).collect())
}

/// Locks the due leases of a locked run, with their tasks.
pub(crate) fn lock_due(tx: &mut Conn, run: &LockedRun) -> Result<Vec<(LockedTask, LockedLease)>, StoreError> {
    let task = tasks_table::id.eq(leases::task_id).and(tasks_table::owner_id.eq(leases::owner_id));
    let query = leases::table
        .inner_join(tasks_table::table.on(task))
        .filter(leases::run_id.eq(run.id.db()).and(leases::ended_at.is_null()))
        .filter(leases::due_at.le(run.now.db()));
    let rows: Vec<(tasks::LockedRow, LockedLease)> =
        load_locked!(tx, query, (tasks::LockedRow::as_select(), LockedLease::as_select()))?;
    Ok(rows.into_iter().map(|(task, lease)| (task.into(), lease)).collect())
}

/// Locks the open leases of a locked run that a machine was granted until a point in time, with their tasks.
pub(crate) fn lock_of_machine(
    tx: &mut Conn,
    run: &LockedRun,
    machine: &str,
    until: Timestamp,
) -> Result<Vec<(LockedTask, LockedLease)>, StoreError> {
    let task = tasks_table::id.eq(leases::task_id).and(tasks_table::owner_id.eq(leases::owner_id));
    let query = leases::table
        .inner_join(tasks_table::table.on(task))
        .filter(leases::run_id.eq(run.id.db()).and(leases::ended_at.is_null()))
        .filter(leases::machine_id.eq(machine).and(leases::granted_at.le(until.db())));
    let rows: Vec<(tasks::LockedRow, LockedLease)> =
        load_locked!(tx, query, (tasks::LockedRow::as_select(), LockedLease::as_select()))?;
    Ok(rows.into_iter().map(|(task, lease)| (task.into(), lease)).collect())
}

/// Whether a machine holds an open lease of a run.
pub(crate) fn holds_any(tx: &mut Conn, run: RunId, machine: &str) -> Result<bool, StoreError> {
    let open: i64 = on!(tx, |c| leases::table
        .filter(leases::run_id.eq(run.db()).and(leases::machine_id.eq(machine)))
        .filter(leases::ended_at.is_null())
        .count()
        .get_result(c))?;
    Ok(open > 0)
}

/// A running attempt, as a heartbeat sees it.
#[derive(Clone, Copy, Debug, Queryable)]
pub(crate) struct RunningLease {
    pub(crate) task: TaskId,
    pub(crate) expires_at: Timestamp,
    pub(crate) timeout_at: Timestamp,
    pub(crate) cancel_requested: bool,
    pub(crate) cancel_received: bool,
    /// What the attempt waits for before it begins.
    waiting_for: Option<WaitsForColumn>,
    /// The database's clock.
    pub(crate) now: Timestamp,
}

impl RunningLease {
    pub(crate) fn waiting_for(&self) -> Option<LeaseWaitsFor> {
        self.waiting_for.map(LeaseWaitsFor::from)
    }
}

/// Locks the lease of an attempt that has started and not ended. `None` when there is no such attempt.
pub(crate) fn lock_running(tx: &mut Conn, call: &LeaseCall) -> Result<Option<RunningLease>, StoreError> {
    let query = leases::table
        .find(call.lease.db())
        .filter(leases::owner_id.eq(call.owner.db()).and(leases::machine_id.eq(call.machine.as_str())))
        .filter(leases::attempt.eq(call.attempt()))
        .filter(leases::ended_at.is_null().and(leases::timeout_at.is_not_null()));
    let columns = (
        leases::task_id,
        leases::expires_at,
        leases::timeout_at.assume_not_null(),
        leases::cancel_requested,
        leases::cancel_received,
        leases::waiting_for,
        now(),
    );
    let rows: Vec<RunningLease> = load_locked!(tx, query, columns)?;
    Ok(rows.into_iter().next())
}

/// Extends a lease.
pub(crate) fn extend(tx: &mut Conn, id: LeaseId, expires_at: Timestamp, due_at: Timestamp) -> Result<(), StoreError> {
    on!(tx, |c| cached(
        diesel::update(leases::table.find(id.db()))
            .set((leases::expires_at.eq(expires_at.db()), leases::due_at.eq(due_at.db())))
    )
    .execute(c))?;
    Ok(())
}

/// Extends every open lease that is due before then. Returns how many.
pub(crate) fn extend_all(tx: &mut Conn, until: Timestamp) -> Result<usize, StoreError> {
    on!(tx, |c| diesel::update(leases::table)
        .filter(leases::ended_at.is_null().and(leases::due_at.lt(until.db())))
        .set((leases::expires_at.eq(until.db()), leases::due_at.eq(until.db())))
        .execute(c))
}

/// A lease that is granted.
#[derive(Clone, Debug)]
pub(crate) struct NewLease {
    pub(crate) id: LeaseId,
    pub(crate) run: RunId,
    pub(crate) task: TaskId,
    /// Its fence.
    pub(crate) attempt: i32,
    /// How many attempts of the task before it were handed back.
    pub(crate) refusals: i32,
}

#[derive(Insertable)]
#[diesel(table_name = leases, treat_none_as_default_value = false)]
struct NewRow<'a> {
    id: DbId,
    run_id: DbId,
    task_id: DbId,
    owner_id: DbId,
    machine_id: &'a str,
    attempt: i32,
    refusals: i32,
    granted_at: DbTime,
    expires_at: DbTime,
    due_at: DbTime,
    cancel_requested: bool,
    output_length: i64,
    output_stored: i64,
    output_cut: bool,
    output_bytes: i64,
    output_counted: i64,
}

/// Inserts leases for a machine, granted at one point in time.
pub(crate) fn insert(
    tx: &mut Conn,
    (owner, machine): (UserId, &MachineId),
    new: &[NewLease],
    granted_at: Timestamp,
    (expires_at, due_at): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    let row = |lease: &NewLease| NewRow {
        id: lease.id.db(),
        run_id: lease.run.db(),
        task_id: lease.task.db(),
        owner_id: owner.db(),
        machine_id: machine.as_str(),
        attempt: lease.attempt,
        refusals: lease.refusals,
        granted_at: granted_at.db(),
        expires_at: expires_at.db(),
        due_at: due_at.db(),
        cancel_requested: false,
        output_length: 0,
        output_stored: 0,
        output_cut: false,
        output_bytes: 0,
        output_counted: 0,
    };
    let rows: Vec<NewRow<'_>> = new.iter().map(row).collect();
    on!(tx, |c| diesel::insert_into(leases::table).values(&rows).execute(c))?;
    Ok(())
}

/// An attempt starts, or resumes after its lease had expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedLease {
    pub(crate) id: LeaseId,
    pub(crate) beaten_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) timeout_at: Timestamp,
    /// The runner learns with this heartbeat that it has to cancel.
    pub(crate) cancel_received: bool,
    /// What it waits for before it begins, and since when. Its timeout stands still meanwhile.
    pub(crate) waits: Option<(LeaseWaitsFor, Timestamp)>,
}

/// Opens the lease of an attempt that has started.
pub(crate) fn start(tx: &mut Conn, lease: &StartedLease) -> Result<(), StoreError> {
    on!(tx, |c| cached(
        diesel::update(leases::table.find(lease.id.db())).set((
            leases::ended_at.eq(None::<DbTime>),
            leases::end_reason.eq(None::<&str>),
            leases::beaten_at.eq(lease.beaten_at.db()),
            leases::expires_at.eq(lease.expires_at.db()),
            leases::timeout_at.eq(lease.timeout_at.db()),
            leases::due_at.eq(if lease.waits.is_some() {
                lease.expires_at
            } else {
                lease.expires_at.min(lease.timeout_at)
            }
            .db()),
            leases::cancel_received.eq(lease.cancel_received),
            leases::waiting_for.eq(lease.waits.map(|(what, _)| what.as_str())),
            leases::waiting_since.eq(lease.waits.map(|(_, since)| since).db()),
        ))
    )
    .execute(c))?;
    Ok(())
}

/// Ends a lease whose run counts all of its output. `outcome` is what the task became, when the runner's report ended it.
pub(crate) fn end(
    tx: &mut Conn,
    id: LeaseId,
    now: Timestamp,
    reason: &str,
    outcome: Option<TaskStatus>,
    refused: bool,
) -> Result<(), StoreError> {
    on!(tx, |c| cached(diesel::update(leases::table.find(id.db())).set((
        leases::ended_at.eq(now.db()),
        leases::end_reason.eq(reason),
        leases::outcome.eq(outcome.map(TaskStatus::as_str)),
        leases::refused.eq(refused),
        leases::output_counted.eq(leases::output_bytes),
    )))
    .execute(c))?;
    Ok(())
}

/// Asks the runners of a run to stop. Returns their machines.
pub(crate) fn request_cancel(tx: &mut Conn, run: RunId) -> Result<BTreeSet<String>, StoreError> {
    let machines: Vec<String> = on!(tx, |c| diesel::update(leases::table)
        .filter(leases::run_id.eq(run.db()).and(leases::ended_at.is_null()))
        .set(leases::cancel_requested.eq(true))
        .returning(leases::machine_id)
        .get_results(c))?;
    Ok(machines.into_iter().collect())
}

/// The attempts that a machine should end, as far as its runner does not know it.
pub(crate) fn cancel_orders(c: &mut Conn, owner: UserId, machine: &MachineId) -> Result<Vec<Order>, StoreError> {
    let rows: Vec<(LeaseId, RunId, TaskId, i32)> = on!(c, |c| leases::table
        .filter(leases::owner_id.eq(owner.db()).and(leases::machine_id.eq(machine.as_str())))
        // Written out: neither database matches the partial index `leases_of_machine` with a bound value.
        .filter(leases::ended_at.is_null().and(leases::cancel_requested).and(not(leases::cancel_received)))
        .order(leases::id)
        .limit(MOST_ORDERS)
        .select((leases::id, leases::run_id, leases::task_id, leases::attempt))
        .load(c))?;
    let order = |(lease_id, run_id, task_id, fence): (LeaseId, RunId, TaskId, i32)| Order {
        id: lease_id.to_string(),
        kind: OrderKind::Cancel,
        run_id,
        task_id,
        lease_id: Some(lease_id),
        signed: None,
        fence: Some(fence.into()),
    };
    Ok(rows.into_iter().map(order).collect())
}

/// The runner has got the request to cancel.
pub(crate) fn receive_cancel(tx: &mut Conn, id: LeaseId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(leases::table.find(id.db())).set(leases::cancel_received.eq(true)).execute(c)).map(drop)
}

/// The run of a lease.
pub(crate) fn run_of(c: &mut Conn, id: LeaseId) -> Result<Option<RunId>, StoreError> {
    on!(c, |c| leases::table.find(id.db()).select(leases::run_id).first(c).optional())
}

/// Those of these tasks whose attempts wait, and what for.
pub(crate) fn waiting(c: &mut Conn, of: &[TaskId]) -> Result<HashMap<TaskId, LeaseWaitsFor>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, WaitsForColumn)> = on!(c, |c| leases::table
        .filter(leases::task_id.eq_any(ids).and(leases::waiting_for.is_not_null()).and(leases::ended_at.is_null()))
        .select((leases::task_id, leases::waiting_for.assume_not_null()))
        .load(c))?;
    Ok(rows.into_iter().map(|(task, what)| (task, what.into())).collect())
}

/// The open leases of an account that take a place, by machine.
pub(crate) fn open_by_machine(c: &mut Conn, owner: UserId) -> Result<HashMap<String, i64>, StoreError> {
    let rows: Vec<(String, i64)> = on!(c, |c| leases::table
        .filter(leases::owner_id.eq(owner.db()).and(leases::ended_at.is_null()).and(leases::waiting_for.is_null()))
        .group_by(leases::machine_id)
        .select((leases::machine_id, count_star()))
        .load(c))?;
    Ok(rows.into_iter().collect())
}

/// When the next lease is due.
pub(crate) fn next_due(c: &mut Conn) -> Result<Option<Timestamp>, StoreError> {
    on!(c, |c| leases::table
        .filter(leases::ended_at.is_null())
        .order(leases::due_at)
        .select(leases::due_at)
        .first(c)
        .optional())
}

/// The runs of leases that are due.
pub(crate) fn due_runs(c: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<RunId>, StoreError> {
    on!(c, |c| leases::table
        .filter(leases::ended_at.is_null().and(leases::due_at.le(now.db())))
        .order(leases::due_at)
        .select(leases::run_id)
        .limit(limit)
        .load(c))
}
