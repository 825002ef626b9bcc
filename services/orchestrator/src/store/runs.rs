//! The rows of runs: locked, changed, and counted.

use diesel::dsl::{count_star, max, sql, sum};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Uid, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::runs::RunStatus;
use ensemble_types::time::Timestamp;

use super::columns::RunStatusColumn;
use super::schema::{leases, runs, tasks};
use crate::domain::Counts;

/// The tasks of a retried run that are still to be queued again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requeue {
    /// The position of the first of them.
    pub(crate) from: i32,
    /// The version of the retry. A task that has it or a later one has ended since.
    pub(crate) version: i64,
}

/// A run whose row is locked until the transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct LockedRun {
    pub(crate) id: RunId,
    pub(crate) owner: UserId,
    pub(crate) status: RunStatus,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) max_concurrency: i32,
    pub(crate) spread: bool,
    pub(crate) pinned: bool,
    /// The machine that runs the tasks without a `machineId`.
    pub(crate) machine: Option<String>,
    pub(crate) counts: Counts,
    /// The version that this transaction creates.
    pub(crate) version: i64,
    pub(crate) served_at: Timestamp,
    /// What it counts for the owner's quota, without the output of open attempts.
    pub(crate) stored_bytes: i64,
    /// Something of an earlier change is left to do.
    pub(crate) unsettled: bool,
    pub(crate) requeue: Option<Requeue>,
    pub(crate) started_at: Option<Timestamp>,
    /// The database's clock when the row was read.
    pub(crate) now: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = runs)]
pub(super) struct LockedRow {
    id: RunId,
    owner_id: UserId,
    #[diesel(deserialize_as = RunStatusColumn)]
    status: RunStatus,
    cancel_reason: Option<String>,
    max_concurrency: i32,
    spread: bool,
    pinned: bool,
    machine_id: Option<String>,
    queued: i32,
    running: i32,
    completed: i32,
    failed: i32,
    cancelled: i32,
    ready: i32,
    version: i64,
    served_at: Timestamp,
    stored_bytes: i64,
    unsettled: bool,
    requeue_from: Option<i32>,
    requeue_version: Option<i64>,
    started_at: Option<Timestamp>,
}

impl LockedRow {
    pub(super) fn locked_at(self, now: Timestamp) -> LockedRun {
        LockedRun {
            id: self.id,
            owner: self.owner_id,
            status: self.status,
            cancel_reason: self.cancel_reason,
            max_concurrency: self.max_concurrency,
            spread: self.spread,
            pinned: self.pinned,
            machine: self.machine_id,
            counts: Counts {
                queued: self.queued,
                running: self.running,
                completed: self.completed,
                failed: self.failed,
                cancelled: self.cancelled,
                ready: self.ready,
            },
            version: self.version + 1,
            served_at: self.served_at,
            stored_bytes: self.stored_bytes,
            unsettled: self.unsettled,
            requeue: self.requeue_from.zip(self.requeue_version).map(|(from, version)| Requeue { from, version }),
            started_at: self.started_at,
            now,
        }
    }
}

/// Locks a run. `None` when it does not exist.
pub(crate) fn lock(tx: &mut Conn, id: RunId) -> Result<Option<LockedRun>, StoreError> {
    let rows: Vec<(LockedRow, Timestamp)> =
        load_locked!(tx, runs::table.find(id.db()), (LockedRow::as_select(), now()))?;
    Ok(rows.into_iter().next().map(|(row, now)| row.locked_at(now)))
}

/// Locks a run, unless another transaction holds its lock.
pub(crate) fn try_lock(tx: &mut Conn, id: RunId) -> Result<Option<LockedRun>, StoreError> {
    let run = runs::table.find(id.db());
    let row: Option<(LockedRow, Timestamp)> = on!(
        tx,
        Pg | c | run.select((LockedRow::as_select(), now())).for_update().skip_locked().first(c).optional(),
        Sqlite | c | run.select((LockedRow::as_select(), now())).first(c).optional()
    )?;
    Ok(row.map(|(row, now)| row.locked_at(now)))
}

/// Locks several runs, in the order of their ids as every other transaction does, so that no two can deadlock.
pub(crate) fn lock_all(tx: &mut Conn, ids: &[RunId]) -> Result<Vec<LockedRun>, StoreError> {
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    let query = runs::table.filter(runs::id.eq_any(ids)).order(runs::id);
    let rows: Vec<(LockedRow, Timestamp)> = load_locked!(tx, query, (LockedRow::as_select(), now()))?;
    Ok(rows.into_iter().map(|(row, now)| row.locked_at(now)).collect())
}

#[derive(AsChangeset)]
#[diesel(table_name = runs, treat_none_as_null = true)]
struct Changes<'a> {
    status: &'static str,
    cancel_reason: Option<&'a str>,
    machine_id: Option<&'a str>,
    queued: i32,
    running: i32,
    completed: i32,
    failed: i32,
    cancelled: i32,
    ready: i32,
    version: i64,
    served_at: DbTime,
    stored_bytes: i64,
    unsettled: bool,
    requeue_from: Option<i32>,
    requeue_version: Option<i64>,
    updated_at: DbTime,
    started_at: Option<DbTime>,
    finished_at: Option<DbTime>,
}

/// Writes a locked run as it is now.
pub(crate) fn save(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    let changes = Changes {
        status: run.status.as_str(),
        cancel_reason: run.cancel_reason.as_deref(),
        machine_id: run.machine.as_deref(),
        queued: run.counts.queued,
        running: run.counts.running,
        completed: run.counts.completed,
        failed: run.counts.failed,
        cancelled: run.counts.cancelled,
        ready: run.counts.ready,
        version: run.version,
        served_at: run.served_at.db(),
        stored_bytes: run.stored_bytes,
        unsettled: run.unsettled,
        requeue_from: run.requeue.map(|requeue| requeue.from),
        requeue_version: run.requeue.map(|requeue| requeue.version),
        updated_at: run.now.db(),
        started_at: run.started_at.db(),
        finished_at: run.status.is_terminal().then_some(run.now).db(),
    };
    on!(tx, |c| cached(diesel::update(runs::table.find(run.id.db())).set(changes)).execute(c))?;
    Ok(())
}

/// Writes whether something is left to do in a locked run that has ended. Its owner sees no change.
pub(crate) fn set_unsettled(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    let row = runs::table.find(run.id.db());
    on!(tx, |c| diesel::update(row).set(runs::unsettled.eq(run.unsettled)).execute(c)).map(drop)
}

/// Some runs in which something is left to do.
pub(crate) fn unsettled(c: &mut Conn, limit: i64) -> Result<Vec<RunId>, StoreError> {
    on!(c, |c| runs::table.filter(runs::unsettled).order(runs::id).limit(limit).select(runs::id).load(c))
}

/// Lets one transaction at a time decide about the number of an account's unfinished tasks, until its commit.
pub(crate) fn lock_unfinished(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    tx.lock(&format!("orchestrator:unfinished:{owner}"))
}

/// The number of an account's unfinished tasks.
pub(crate) fn unfinished(tx: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    let open: Option<i64> = on!(tx, |c| runs::table
        .filter(runs::owner_id.eq(owner.db()).and(runs::finished_at.is_null()))
        .select(sum(runs::queued + runs::running))
        .first(c))?;
    Ok(open.unwrap_or(0))
}

/// What an account's runs count for its quota: what their rows say, and the output of open attempts.
pub(crate) fn stored_bytes(c: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    // PostgreSQL's sum of bigints is a numeric, which SQLite does not have. Each reads as much as it can from an index alone. That of
    // PostgreSQL holds `ended_bytes`, because it may not hold what changes often.
    let all = runs::table.filter(runs::owner_id.eq(owner.db()));
    let of_runs: i64 = on!(
        c,
        Pg | c | all
            .select(
                sql::<BigInt>(
                    "CAST(COALESCE(sum(ended_bytes), 0) + (SELECT COALESCE(sum(open.stored_bytes), 0) FROM runs open \
                     WHERE open.finished_at IS NULL AND open.owner_id = "
                )
                    .bind::<Uid, _>(owner.db())
                    .sql(") AS bigint)")
            )
            .get_result(c),
        Sqlite | c | all.select(sql::<BigInt>("CAST(COALESCE(sum(stored_bytes), 0) AS bigint)")).get_result(c)
    )?;
    let of_open_attempts: i64 = on!(c, |c| leases::table
        .filter(leases::owner_id.eq(owner.db()).and(leases::ended_at.is_null()))
        .select(sql::<BigInt>("CAST(COALESCE(sum(output_bytes - output_counted), 0) AS bigint)"))
        .get_result(c))?;
    Ok(of_runs.saturating_add(of_open_attempts))
}

/// What each account's runs take, of all accounts that have some, without the output of attempts that are not over.
pub(crate) fn bytes_of_accounts(c: &mut Conn) -> Result<Vec<i64>, StoreError> {
    on!(c, |c| runs::table.group_by(runs::owner_id).select(sql::<BigInt>("CAST(sum(stored_bytes) AS bigint)")).load(c))
}

/// Waits for the transactions that have locked unfinished runs of an account, in the order of their ids.
pub(crate) fn await_all(tx: &mut Conn, owner: UserId) -> Result<(), StoreError> {
    let unfinished = runs::table.filter(runs::owner_id.eq(owner.db()).and(runs::finished_at.is_null())).order(runs::id);
    // SQLite has one writer at a time, so there is nothing to wait for.
    on!(tx, Pg | c | unfinished.select(runs::id).for_update().execute(c), Sqlite | _c | Ok(0)).map(drop)
}

/// The unfinished runs that a machine has something to do with: an open lease, a pinned task, or the run's other tasks.
pub(crate) fn of_machine(c: &mut Conn, owner: UserId, machine: &str) -> Result<Vec<RunId>, StoreError> {
    let leased = leases::table
        .filter(leases::owner_id.eq(owner.db()).and(leases::machine_id.eq(machine)))
        .filter(leases::ended_at.is_null())
        .select(leases::run_id);
    let pinned = tasks::table
        .filter(tasks::owner_id.eq(owner.db()).and(tasks::machine_id.eq(machine)))
        .filter(tasks::finished_at.is_null())
        .select(tasks::run_id);
    let taken = runs::table
        .filter(runs::owner_id.eq(owner.db()).and(runs::machine_id.eq(machine)))
        .filter(runs::finished_at.is_null())
        .select(runs::id);
    let mut found: Vec<RunId> = on!(c, |c| leased.load(c))?;
    found.append(&mut on!(c, |c| pinned.load(c))?);
    found.append(&mut on!(c, |c| taken.load(c))?);
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The present versions of these runs.
pub(crate) fn versions(c: &mut Conn, ids: &[RunId]) -> Result<Vec<(RunId, i64)>, StoreError> {
    let ids: Vec<DbId> = ids.iter().map(|id| id.db()).collect();
    on!(c, |c| runs::table.filter(runs::id.eq_any(ids)).select((runs::id, runs::version)).load(c))
}

/// For each of these accounts that has tasks ready for a runner: when one of the runs concerned last changed.
pub(crate) fn ready_work(c: &mut Conn, owners: &[UserId]) -> Result<Vec<(UserId, Timestamp)>, StoreError> {
    let owners: Vec<DbId> = owners.iter().map(|id| id.db()).collect();
    on!(c, |c| runs::table
        .filter(runs::owner_id.eq_any(owners))
        .filter(runs::finished_at.is_null().and(runs::ready.gt(0)))
        .filter(runs::running.lt(runs::max_concurrency))
        .group_by(runs::owner_id)
        .select((runs::owner_id, max(runs::updated_at).assume_not_null()))
        .load(c))
}

/// Whether an account has a task that is ready for some machine.
pub(crate) fn is_any_ready(c: &mut Conn, owner: UserId) -> Result<bool, StoreError> {
    let unfinished = runs::table.filter(runs::owner_id.eq(owner.db()).and(runs::finished_at.is_null()));
    let first: Option<RunId> = on!(c, |c| unfinished.filter(runs::ready.gt(0)).select(runs::id).first(c).optional())?;
    Ok(first.is_some())
}

/// What is not finished, over all accounts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unfinished {
    pub(crate) runs: i64,
    pub(crate) queued: i64,
    /// Queued tasks that wait for nothing but a runner.
    pub(crate) ready: i64,
    pub(crate) running: i64,
    pub(crate) leases: i64,
}

pub(crate) fn count_unfinished(c: &mut Conn) -> Result<Unfinished, StoreError> {
    type Sums = (i64, Option<i64>, Option<i64>, Option<i64>);
    let (count, queued, ready, running): Sums = on!(c, |c| runs::table
        .filter(runs::finished_at.is_null())
        .select((count_star(), sum(runs::queued), sum(runs::ready), sum(runs::running)))
        .first(c))?;
    let leases = on!(c, |c| leases::table.filter(leases::ended_at.is_null()).count().get_result(c))?;
    let sum = |sum: Option<i64>| sum.unwrap_or(0);
    Ok(Unfinished { runs: count, queued: sum(queued), ready: sum(ready), running: sum(running), leases })
}
