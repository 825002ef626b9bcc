//! Tasks that are live sessions: what their machines do, which only those can read, and the sessions.

use std::collections::HashMap;

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, SessionId, TaskId, UserId};
use ensemble_types::runs::{SealedTask, TaskSession};

use super::columns::TaskSessionColumn;
use super::schema::{leases, task_sessions};
use crate::domain::TaskDraft;

#[derive(Insertable)]
#[diesel(table_name = task_sessions)]
struct NewRow<'a> {
    task_id: DbId,
    owner_id: DbId,
    kind: &'static str,
    sealed: &'a str,
}

impl<'a> NewRow<'a> {
    fn of(owner: UserId, task: &'a TaskDraft) -> Option<Self> {
        let (sealed, kind) = (task.sealed.as_deref()?, task.session?.as_str());
        Some(Self { task_id: task.id.db(), owner_id: owner.db(), kind, sealed })
    }
}

/// Inserts those of these tasks that are sealed.
pub(crate) fn insert(tx: &mut Conn, owner: UserId, tasks: &[TaskDraft]) -> Result<(), StoreError> {
    /// Each row has up to 64 KiB.
    const CHUNK: usize = 100;
    let rows: Vec<NewRow<'_>> = tasks.iter().filter_map(|task| NewRow::of(owner, task)).collect();
    for rows in rows.chunks(CHUNK) {
        on!(tx, |c| diesel::insert_into(task_sessions::table).values(rows).execute(c))?;
    }
    Ok(())
}

/// How a task is a session, and the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfTask {
    pub(crate) kind: TaskSession,
    pub(crate) session: Option<SessionId>,
}

/// Those of these tasks that are sessions.
pub(crate) fn of_tasks(c: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<HashMap<TaskId, OfTask>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, TaskSessionColumn, Option<SessionId>)> = on!(c, |c| task_sessions::table
        .filter(task_sessions::task_id.eq_any(ids).and(task_sessions::owner_id.eq(owner.db())))
        .select((task_sessions::task_id, task_sessions::kind, task_sessions::session_id))
        .load(c))?;
    Ok(rows.into_iter().map(|(task, kind, session)| (task, OfTask { kind: kind.into(), session })).collect())
}

/// What the machine of a task does, for that machine.
pub(crate) fn sealed(c: &mut Conn, owner: UserId, of: TaskId) -> Result<Option<(SealedTask, TaskSession)>, StoreError> {
    let row: Option<(String, TaskSessionColumn)> = on!(c, |c| task_sessions::table
        .find(of.db())
        .filter(task_sessions::owner_id.eq(owner.db()))
        .select((task_sessions::sealed, task_sessions::kind))
        .first(c)
        .optional())?;
    let Some((sealed, kind)) = row else { return Ok(None) };
    let sealed = SealedTask::new(sealed).map_err(|error| StoreError::bad_row(c.operation(), error))?;
    Ok(Some((sealed, kind.into())))
}

/// A task has its session, which stays the same. `true`: that is new. A task that is no session gets none.
pub(crate) fn begun(tx: &mut Conn, owner: UserId, task: TaskId, session: SessionId) -> Result<bool, StoreError> {
    let changed = on!(tx, |c| diesel::update(task_sessions::table.find(task.db()))
        .filter(task_sessions::owner_id.eq(owner.db()).and(task_sessions::session_id.is_null()))
        .set(task_sessions::session_id.eq(session.db()))
        .execute(c))?;
    Ok(changed > 0)
}

/// Whether there is nothing to be recorded: the task has its session, or is none.
pub(crate) fn is_known(c: &mut Conn, owner: UserId, task: TaskId) -> Result<bool, StoreError> {
    let row = task_sessions::table.find(task.db()).filter(task_sessions::owner_id.eq(owner.db()));
    let known: Option<Option<SessionId>> = on!(c, |c| row.select(task_sessions::session_id).first(c).optional())?;
    Ok(known.is_none_or(|known| known.is_some()))
}

/// Whether the task is the first turn of a session, whose agent may ask a person.
pub(crate) fn may_ask(c: &mut Conn, owner: UserId, task: TaskId) -> Result<bool, StoreError> {
    let row = task_sessions::table.find(task.db()).filter(task_sessions::owner_id.eq(owner.db()));
    let kind: Option<TaskSessionColumn> = on!(c, |c| row.select(task_sessions::kind).first(c).optional())?;
    Ok(kind.is_some_and(|kind| TaskSession::from(kind) == TaskSession::Turn))
}

/// How many attempts of a run wait for an answer of a person. They leave their places to others.
pub(crate) fn asking(c: &mut Conn, run: RunId) -> Result<i32, StoreError> {
    let count: i64 = on!(c, |c| leases::table
        .filter(leases::run_id.eq(run.db()).and(leases::ended_at.is_null()))
        .filter(leases::waiting_for.eq(sql::<Nullable<Text>>("'input'")))
        .count()
        .get_result(c))?;
    Ok(i32::try_from(count).unwrap_or(i32::MAX))
}

/// Removes those of tasks that are deleted.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = task_sessions::table.filter(task_sessions::task_id.eq_any(ids));
    on!(tx, |c| diesel::delete(rows.filter(task_sessions::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
