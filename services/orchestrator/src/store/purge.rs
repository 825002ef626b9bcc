//! Removal of deleted runs: first the run's own row, later what belongs to it. What is remembered of it for some time is that its id and its
//! ref were used.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;

use super::runs::LockedRun;
use super::schema::{deleted_runs, dependencies, leases, output_chunks, runs, task_specs, tasks};
use super::{ended_tasks, follow_ups, permissions, refusals, signatures, task_changes, task_sessions};

/// For this time no run gets the id of one that was deleted.
const KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Deleted runs of an account that are remembered. Of an account that deletes more, they are remembered for less than [`KEPT`].
const MOST: i64 = 10_000;

/// Deletes a locked run. It is not found after the commit, and it counts for no quota. What belongs to it is still there.
pub(crate) fn delete_run(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    let id = run.id.db();
    on!(tx, |c| diesel::delete(runs::table.find(id)).execute(c))?;
    let row = (
        deleted_runs::run_id.eq(id),
        deleted_runs::owner_id.eq(run.owner.db()),
        deleted_runs::reference.eq(Ref::of(&run.id).db()),
        deleted_runs::deleted_at.eq(run.now.db()),
    );
    on!(tx, |c| diesel::insert_into(deleted_runs::table).values(row).execute(c)).map(drop)
}

/// Locks some runs that ended before this time. Skips those that another transaction has locked.
pub(crate) fn ended_before(tx: &mut Conn, cutoff: Timestamp, limit: i64) -> Result<Vec<RunId>, StoreError> {
    let query = runs::table
        .filter(runs::finished_at.lt(Some(cutoff.db())))
        .order(runs::finished_at)
        .limit(limit)
        .select(runs::id);
    on!(tx, Pg | c | query.for_update().skip_locked().load(c), Sqlite | c | query.load(c))
}

/// Locks a deleted run that is not purged completely. Skips those that another replica is working on.
pub(crate) fn next_deleted(tx: &mut Conn) -> Result<Option<(UserId, RunId)>, StoreError> {
    let query = deleted_runs::table
        .filter(diesel::dsl::not(deleted_runs::purged))
        .select((deleted_runs::owner_id, deleted_runs::run_id))
        .limit(1);
    on!(tx, Pg | c | query.for_update().skip_locked().first(c).optional(), Sqlite | c | query.first(c).optional())
}

/// Some tasks of a run.
pub(crate) fn some_tasks(tx: &mut Conn, (owner, run): (UserId, RunId), limit: i64) -> Result<Vec<TaskId>, StoreError> {
    on!(tx, |c| tasks::table
        .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
        .order(tasks::position)
        .limit(limit)
        .select(tasks::id)
        .load(c))
}

/// Some attempts of these tasks.
pub(crate) fn some_attempts(
    tx: &mut Conn,
    owner: UserId,
    of: &[TaskId],
    limit: i64,
) -> Result<Vec<LeaseId>, StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let attempts = leases::table.filter(leases::task_id.eq_any(ids).and(leases::owner_id.eq(owner.db())));
    on!(tx, |c| attempts.limit(limit).select(leases::id).load(c))
}

/// Removes the first pieces of an attempt's output, and the attempt when it has no more than `limit`. Returns how many
/// pieces it removed.
pub(crate) fn remove_output(tx: &mut Conn, owner: UserId, lease: LeaseId, limit: usize) -> Result<usize, StoreError> {
    let rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let of_attempt = output_chunks::lease_id.eq(lease.db()).and(output_chunks::owner_id.eq(owner.db()));
    let pieces = || output_chunks::table.filter(of_attempt);
    let starts: Vec<i64> =
        on!(tx, |c| pieces().order(output_chunks::start_at).limit(rows).select(output_chunks::start_at).load(c))?;
    if let Some(last) = starts.last() {
        let first_pieces = pieces().filter(output_chunks::start_at.le(*last));
        on!(tx, |c| diesel::delete(first_pieces).execute(c))?;
    }
    if starts.len() < limit {
        on!(tx, |c| diesel::delete(leases::table.find(lease.db())).execute(c))?;
    }
    Ok(starts.len())
}

/// Removes tasks that have no attempts left.
pub(crate) fn remove_tasks(tx: &mut Conn, (owner, run): (UserId, RunId), of: &[TaskId]) -> Result<usize, StoreError> {
    permissions::forget(tx, owner, of)?;
    refusals::forget(tx, owner, of)?;
    task_changes::forget(tx, owner, of)?;
    follow_ups::forget(tx, owner, of)?;
    task_sessions::forget(tx, owner, of)?;
    signatures::forget(tx, owner, of)?;
    ended_tasks::forget(tx, (owner, run), of)?;
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let edges = dependencies::table.filter(dependencies::task_id.eq_any(&ids));
    on!(tx, |c| diesel::delete(edges.filter(dependencies::owner_id.eq(owner.db()))).execute(c))?;
    let specs = task_specs::table.filter(task_specs::task_id.eq_any(&ids));
    on!(tx, |c| diesel::delete(specs.filter(task_specs::owner_id.eq(owner.db()))).execute(c))?;
    let rows = tasks::table.filter(tasks::id.eq_any(&ids).and(tasks::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::delete(rows).execute(c))
}

/// Nothing is left of a deleted run but the memory of its id.
pub(crate) fn set_purged(tx: &mut Conn, (owner, run): (UserId, RunId)) -> Result<(), StoreError> {
    let of_owner = || deleted_runs::table.filter(deleted_runs::owner_id.eq(owner.db()));
    let row = of_owner().filter(deleted_runs::run_id.eq(run.db()));
    on!(tx, |c| diesel::update(row).set(deleted_runs::purged.eq(true)).execute(c))?;
    let surplus: Option<Timestamp> = on!(tx, |c| of_owner()
        .order(deleted_runs::deleted_at.desc())
        .offset(MOST)
        .select(deleted_runs::deleted_at)
        .first(c)
        .optional())?;
    let Some(newest) = surplus else { return Ok(()) };
    let old = of_owner().filter(deleted_runs::purged.and(deleted_runs::deleted_at.le(newest.db())));
    on!(tx, |c| diesel::delete(old).execute(c)).map(drop)
}

/// Forgets some ids of runs that were deleted long ago. Returns how many.
pub(crate) fn forget_old(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let before = tx.now()?.minus(KEPT);
    let old: Vec<DbId> = on!(tx, |c| deleted_runs::table
        .filter(deleted_runs::deleted_at.lt(before.db()).and(deleted_runs::purged))
        .order(deleted_runs::deleted_at)
        .limit(limit)
        .select(deleted_runs::run_id)
        .load::<RunId>(c))?
    .into_iter()
    .map(|id| id.db())
    .collect();
    if old.is_empty() {
        return Ok(0);
    }
    on!(tx, |c| diesel::delete(deleted_runs::table.filter(deleted_runs::run_id.eq_any(old))).execute(c))
}
