//! The rows of an attempt's output: chunks by byte offset, and the lengths in its lease.

use diesel::dsl::{max, not, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Integer};
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;

use super::columns::TaskStatusColumn;
use super::schema::{leases, output_chunks, runs, tasks};
use crate::domain::LeaseCall;

/// How much output of an attempt has arrived.
#[derive(Clone, Copy, Debug, Queryable)]
pub(crate) struct OutputState {
    /// Bytes that the runner has sent.
    pub(crate) length: i64,
    /// Bytes that are stored.
    pub(crate) stored: i64,
    /// The limit was reached, so later output is not stored.
    pub(crate) truncated: bool,
    /// What the stored output counts for the account's quota.
    pub(crate) counted_bytes: i64,
}

/// Locks the lease of an attempt that has started and not ended. `None` when there is no such attempt. No other row of the
/// run is locked.
pub(crate) fn lock_running(tx: &mut Conn, call: &LeaseCall) -> Result<Option<OutputState>, StoreError> {
    let query = leases::table
        .find(call.lease.db())
        .filter(leases::owner_id.eq(call.owner.db()).and(leases::machine_id.eq(call.machine.as_str())))
        .filter(leases::attempt.eq(call.attempt()))
        .filter(leases::ended_at.is_null().and(leases::timeout_at.is_not_null()));
    let columns = (leases::output_length, leases::output_stored, leases::output_cut, leases::output_bytes);
    let rows: Vec<OutputState> = load_locked!(tx, query, columns)?;
    Ok(rows.into_iter().next())
}

/// Inserts a chunk of output that starts at this byte of what is stored.
pub(crate) fn insert_chunk(
    tx: &mut Conn,
    owner: UserId,
    lease: LeaseId,
    start: i64,
    data: &[u8],
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::insert_into(output_chunks::table)
        .values((
            output_chunks::lease_id.eq(lease.db()),
            output_chunks::owner_id.eq(owner.db()),
            output_chunks::start_at.eq(start),
            output_chunks::data.eq(data)
        ))
        .execute(c))?;
    Ok(())
}

pub(crate) fn save_state(tx: &mut Conn, lease: LeaseId, state: OutputState) -> Result<(), StoreError> {
    on!(tx, |c| cached(diesel::update(leases::table.find(lease.db())).set((
        leases::output_length.eq(state.length),
        leases::output_stored.eq(state.stored),
        leases::output_cut.eq(state.truncated),
        leases::output_bytes.eq(state.counted_bytes),
    )))
    .execute(c))?;
    Ok(())
}

/// The status of a task, and the number of its latest attempt.
pub(crate) fn task(
    c: &mut Conn,
    owner: UserId,
    run: RunId,
    task: TaskId,
) -> Result<Option<(TaskStatus, i32)>, StoreError> {
    // The tasks of a deleted run are there until they are purged.
    let row: Option<(TaskStatusColumn, i32)> = on!(c, |c| tasks::table
        .inner_join(runs::table)
        .filter(tasks::id.eq(task.db()))
        .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
        .select((tasks::status, tasks::attempt - tasks::refusals))
        .first(c)
        .optional())?;
    Ok(row.map(|(status, attempt)| (status.into(), attempt)))
}

/// The lease of an attempt, how many bytes of its output are stored, and whether its runner has reported its end.
pub(crate) fn attempt(
    c: &mut Conn,
    owner: UserId,
    task: TaskId,
    number: i32,
) -> Result<Option<(LeaseId, i64, bool)>, StoreError> {
    on!(c, |c| leases::table
        .filter(leases::task_id.eq(task.db()).and(leases::owner_id.eq(owner.db())).and(not(leases::refused)))
        .filter((leases::attempt - leases::refusals).eq(number))
        // An attempt that ended at the provider's usage limit does not count, so the next one has its number.
        .order(leases::attempt.desc())
        .select((leases::id, leases::output_stored, leases::outcome.is_not_null()))
        .first(c)
        .optional())
}

/// Pieces of output in order, the first of which starts at this byte: at most `limit` pieces, each with at most `longest`
/// bytes. A piece that is cut is the last one that may be used.
pub(crate) fn pieces(
    c: &mut Conn,
    owner: UserId,
    lease: LeaseId,
    from: i64,
    (limit, longest): (i64, i32),
) -> Result<Vec<(i64, Vec<u8>)>, StoreError> {
    let first: Option<i64> = on!(c, |c| output_chunks::table
        .filter(output_chunks::lease_id.eq(lease.db()).and(output_chunks::owner_id.eq(owner.db())))
        .filter(output_chunks::start_at.le(from))
        .select(max(output_chunks::start_at))
        .first(c))?;
    // The rows have up to 1 MiB. Only the part that is sent next is read, because many readers can be slow.
    let part = || {
        sql::<Binary>("substr(data, CAST(CASE WHEN start_at < ")
            .bind::<BigInt, _>(from)
            .sql(" THEN ")
            .bind::<BigInt, _>(from)
            .sql(" - start_at + 1 ELSE 1 END AS integer), ")
            .bind::<Integer, _>(longest)
            .sql(")")
    };
    let rows: Vec<(i64, Vec<u8>)> = on!(c, |c| output_chunks::table
        .filter(output_chunks::lease_id.eq(lease.db()).and(output_chunks::owner_id.eq(owner.db())))
        .filter(output_chunks::start_at.ge(first.unwrap_or(0)))
        .filter(output_chunks::start_at.lt(from + i64::from(longest)))
        .order(output_chunks::start_at)
        .select((output_chunks::start_at, part()))
        .limit(limit)
        .load(c))?;
    Ok(rows.into_iter().map(|(start, data)| (start.max(from), data)).collect())
}
