//! Removal of deleted runs: first the run's own row, later what belongs to it.

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, RunId, TaskId};
use ensemble_types::time::Timestamp;

use super::runs::LockedRun;
use super::schema::{deleted_runs, dependencies, leases, output_chunks, runs, task_specs, tasks};
use super::{ended_tasks, follow_ups, permissions, refusals, signatures, task_changes, task_sessions};

/// Deletes a locked run. Nobody finds it after the commit, and it counts for no quota. What belongs to it is still there.
pub(crate) fn delete_run(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    let id = run.id.db();
    on!(tx, |c| diesel::delete(runs::table.find(id)).execute(c))?;
    on!(tx, |c| diesel::insert_into(deleted_runs::table).values(deleted_runs::run_id.eq(id)).execute(c)).map(drop)
}

/// Locks some runs that ended before this time. Skips those that somebody is working on.
pub(crate) fn ended_before(tx: &mut Conn, cutoff: Timestamp, limit: i64) -> Result<Vec<RunId>, StoreError> {
    let query = runs::table
        .filter(runs::finished_at.lt(Some(cutoff.db())))
        .order(runs::finished_at)
        .limit(limit)
        .select(runs::id);
    on!(tx, Pg | c | query.for_update().skip_locked().load(c), Sqlite | c | query.load(c))
}

/// Locks a deleted run of which something is left. Skips those that another replica is working on.
pub(crate) fn next_deleted(tx: &mut Conn) -> Result<Option<RunId>, StoreError> {
    let query = deleted_runs::table.select(deleted_runs::run_id).limit(1);
    on!(tx, Pg | c | query.for_update().skip_locked().first(c).optional(), Sqlite | c | query.first(c).optional())
}

/// Some tasks of a run.
pub(crate) fn some_tasks(tx: &mut Conn, run: RunId, limit: i64) -> Result<Vec<TaskId>, StoreError> {
    on!(tx, |c| tasks::table
        .filter(tasks::run_id.eq(run.db()))
        .order(tasks::position)
        .limit(limit)
        .select(tasks::id)
        .load(c))
}

/// Some attempts of these tasks.
pub(crate) fn some_attempts(tx: &mut Conn, of: &[TaskId], limit: i64) -> Result<Vec<LeaseId>, StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| leases::table.filter(leases::task_id.eq_any(ids)).limit(limit).select(leases::id).load(c))
}

/// Removes the first pieces of an attempt's output, and the attempt when it has no more than `limit`. Returns how many
/// pieces it removed.
pub(crate) fn remove_output(tx: &mut Conn, lease: LeaseId, limit: usize) -> Result<usize, StoreError> {
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let of_attempt = output_chunks::lease_id.eq(lease.db());
    let starts: Vec<i64> = on!(tx, |c| output_chunks::table
        .filter(of_attempt)
        .order(output_chunks::start_at)
        .limit(rows)
        .select(output_chunks::start_at)
        .load(c))?;
    if let Some(last) = starts.last() {
        let first_pieces = output_chunks::table.filter(of_attempt.and(output_chunks::start_at.le(*last)));
        on!(tx, |c| diesel::delete(first_pieces).execute(c))?;
    }
    if starts.len() < limit {
        on!(tx, |c| diesel::delete(leases::table.find(lease.db())).execute(c))?;
    }
    Ok(starts.len())
}

/// Removes tasks that have no attempts left.
pub(crate) fn remove_tasks(tx: &mut Conn, run: RunId, of: &[TaskId]) -> Result<usize, StoreError> {
    permissions::forget(tx, of)?;
    refusals::forget(tx, of)?;
    task_changes::forget(tx, of)?;
    follow_ups::forget(tx, of)?;
    task_sessions::forget(tx, of)?;
    signatures::forget(tx, of)?;
    ended_tasks::forget(tx, run, of)?;
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(dependencies::table.filter(dependencies::task_id.eq_any(&ids))).execute(c))?;
    on!(tx, |c| diesel::delete(task_specs::table.filter(task_specs::task_id.eq_any(&ids))).execute(c))?;
    on!(tx, |c| diesel::delete(tasks::table.filter(tasks::id.eq_any(&ids))).execute(c))
}

/// Removes the record of a deleted run that has no tasks left.
pub(crate) fn forget_run(tx: &mut Conn, run: RunId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(deleted_runs::table.find(run.db())).execute(c)).map(drop)
}
