//! The diffs of tasks: the parts that the last attempt sent, and where the stored diff ends.

use std::collections::HashSet;

use diesel::dsl::sum;
use diesel::prelude::*;
use diesel::upsert::excluded;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId, UserId};

use super::schema::{runs, task_diff_ends, task_diffs, tasks};

/// The longest piece of a part. A reader gets one at a time.
const PIECE: usize = 32 << 10;

/// How much of a diff is stored.
#[derive(Clone, Copy, Debug, Default, Queryable)]
pub(crate) struct DiffEnd {
    /// The attempt that sent it.
    pub(crate) fence: i32,
    pub(crate) stored_bytes: i64,
    /// Some of it was not stored.
    pub(crate) truncated: bool,
}

pub(crate) fn end(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<Option<DiffEnd>, StoreError> {
    on!(tx, |c| task_diff_ends::table
        .find(task.db())
        .filter(task_diff_ends::owner_id.eq(owner.db()))
        .select((task_diff_ends::fence, task_diff_ends::stored_bytes, task_diff_ends::truncated))
        .first(c)
        .optional())
}

pub(crate) fn set_end(tx: &mut Conn, owner: UserId, task: TaskId, end: DiffEnd) -> Result<(), StoreError> {
    use diesel::query_dsl::methods::FilterDsl;
    let row = (
        task_diff_ends::task_id.eq(task.db()),
        task_diff_ends::owner_id.eq(owner.db()),
        task_diff_ends::fence.eq(end.fence),
        task_diff_ends::stored_bytes.eq(end.stored_bytes),
        task_diff_ends::truncated.eq(end.truncated),
    );
    on!(tx, |c| diesel::insert_into(task_diff_ends::table)
        .values(row)
        .on_conflict(task_diff_ends::task_id)
        .do_update()
        .set((
            task_diff_ends::fence.eq(excluded(task_diff_ends::fence)),
            task_diff_ends::stored_bytes.eq(excluded(task_diff_ends::stored_bytes)),
            task_diff_ends::truncated.eq(excluded(task_diff_ends::truncated)),
        ))
        .filter(task_diff_ends::owner_id.eq(owner.db()))
        .execute(c))
    .map(drop)
}

/// The length of a part. `None` when there is no such part.
pub(crate) fn part_length(tx: &mut Conn, owner: UserId, task: TaskId, path: &str) -> Result<Option<i64>, StoreError> {
    on!(tx, |c| task_diffs::table
        .filter(task_diffs::task_id.eq(task.db()).and(task_diffs::owner_id.eq(owner.db())))
        .filter(task_diffs::path.eq(path))
        .select(sum(task_diffs::size))
        .first(c))
}

/// Stores a part in place of the one with the same path.
pub(crate) fn put_part(tx: &mut Conn, owner: UserId, task: TaskId, path: &str, data: &str) -> Result<(), StoreError> {
    let same = task_diffs::table.filter(task_diffs::task_id.eq(task.db()).and(task_diffs::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::delete(same.filter(task_diffs::path.eq(path))).execute(c))?;
    let row = |(piece, data): (i32, &'_ str)| {
        (
            task_diffs::task_id.eq(task.db()),
            task_diffs::owner_id.eq(owner.db()),
            task_diffs::path.eq(path.to_owned()),
            task_diffs::piece.eq(piece),
            task_diffs::data.eq(data.to_owned()),
            task_diffs::size.eq(i32::try_from(data.len()).unwrap_or(i32::MAX)),
        )
    };
    let rows: Vec<_> = (0..).zip(pieces(data)).map(row).collect();
    on!(tx, |c| diesel::insert_into(task_diffs::table).values(&rows).execute(c)).map(drop)
}

/// A text in pieces of at most [`PIECE`] bytes, at least one.
fn pieces(text: &str) -> Vec<&str> {
    let (mut rest, mut found) = (text, Vec::new());
    loop {
        let mut end = PIECE.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, more) = rest.split_at(end);
        found.push(piece);
        if more.is_empty() {
            return found;
        }
        rest = more;
    }
}

/// Removes the parts of a task's diff.
pub(crate) fn clear(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<(), StoreError> {
    let parts = task_diffs::table.filter(task_diffs::task_id.eq(task.db()).and(task_diffs::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::delete(parts).execute(c)).map(drop)
}

/// Removes the diff of an older attempt than this one, which has sent none. Returns how many bytes it counted.
pub(crate) fn clear_older(tx: &mut Conn, owner: UserId, task: TaskId, fence: i32) -> Result<i64, StoreError> {
    let Some(end) = end(tx, owner, task)?.filter(|end| end.fence != fence) else { return Ok(0) };
    clear(tx, owner, task)?;
    set_end(tx, owner, task, DiffEnd { fence, ..DiffEnd::default() })?;
    Ok(end.stored_bytes)
}

/// Changes what a run counts for its owner's quota. The caller has locked the run.
pub(crate) fn count(tx: &mut Conn, run: RunId, more: i64) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(runs::table.find(run.db()))
        .set(runs::stored_bytes.eq(runs::stored_bytes + more))
        .execute(c))
    .map(drop)
}

/// Whether an account's run has this task.
pub(crate) fn has_task(c: &mut Conn, owner: UserId, run: RunId, task: TaskId) -> Result<bool, StoreError> {
    // The tasks of a deleted run are there until they are purged.
    let found: Option<TaskId> = on!(c, |c| tasks::table
        .inner_join(runs::table)
        .filter(tasks::id.eq(task.db()))
        .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
        .select(tasks::id)
        .first(c)
        .optional())?;
    Ok(found.is_some())
}

/// The first piece of a diff after this one, by path and position, with its own.
pub(crate) fn next_piece(
    c: &mut Conn,
    owner: UserId,
    task: TaskId,
    after: Option<&(String, i32)>,
) -> Result<Option<(String, i32, String)>, StoreError> {
    on!(c, |c| {
        let mut query = task_diffs::table
            .filter(task_diffs::task_id.eq(task.db()).and(task_diffs::owner_id.eq(owner.db())))
            .order((task_diffs::path, task_diffs::piece))
            .select((task_diffs::path, task_diffs::piece, task_diffs::data))
            .into_boxed();
        if let Some((path, piece)) = after {
            let later = task_diffs::path.eq(path).and(task_diffs::piece.gt(*piece));
            query = query.filter(later.or(task_diffs::path.gt(path)));
        }
        query.first(c).optional()
    })
}

/// Those of these tasks whose stored diff is not complete.
pub(crate) fn truncated(c: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<HashSet<TaskId>, StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let found: Vec<TaskId> = on!(c, |c| task_diff_ends::table
        .filter(task_diff_ends::task_id.eq_any(ids).and(task_diff_ends::owner_id.eq(owner.db())))
        .filter(task_diff_ends::truncated)
        .select(task_diff_ends::task_id)
        .load(c))?;
    Ok(found.into_iter().collect())
}

pub(super) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let parts = task_diffs::table.filter(task_diffs::task_id.eq_any(&ids).and(task_diffs::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::delete(parts).execute(c))?;
    let ends = task_diff_ends::table.filter(task_diff_ends::task_id.eq_any(&ids));
    on!(tx, |c| diesel::delete(ends.filter(task_diff_ends::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
