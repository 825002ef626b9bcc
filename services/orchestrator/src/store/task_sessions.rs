//! Tasks that are live sessions: what their machines do, which only those can read, and the sessions.

use std::collections::HashMap;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{SessionId, TaskId};
use ensemble_types::runs::{SealedTask, TaskSession};

use super::columns::TaskSessionColumn;
use super::schema::task_sessions;
use crate::domain::TaskDraft;

#[derive(Insertable)]
#[diesel(table_name = task_sessions)]
struct NewRow<'a> {
    task_id: DbId,
    kind: &'static str,
    sealed: &'a str,
}

impl<'a> NewRow<'a> {
    fn of(task: &'a TaskDraft) -> Option<Self> {
        let (sealed, kind) = (task.sealed.as_deref()?, task.session?.as_str());
        Some(Self { task_id: task.id.db(), kind, sealed })
    }
}

/// Inserts those of these tasks that are sealed.
pub(crate) fn insert(tx: &mut Conn, tasks: &[TaskDraft]) -> Result<(), StoreError> {
    /// Each row has up to 64 KiB.
    const CHUNK: usize = 100;
    let rows: Vec<NewRow<'_>> = tasks.iter().filter_map(NewRow::of).collect();
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
pub(crate) fn of_tasks(c: &mut Conn, of: &[TaskId]) -> Result<HashMap<TaskId, OfTask>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, TaskSessionColumn, Option<SessionId>)> = on!(c, |c| task_sessions::table
        .filter(task_sessions::task_id.eq_any(ids))
        .select((task_sessions::task_id, task_sessions::kind, task_sessions::session_id))
        .load(c))?;
    Ok(rows.into_iter().map(|(task, kind, session)| (task, OfTask { kind: kind.into(), session })).collect())
}

/// What the machine of a task does, for that machine.
pub(crate) fn sealed(c: &mut Conn, of: TaskId) -> Result<Option<(SealedTask, TaskSession)>, StoreError> {
    let row: Option<(String, TaskSessionColumn)> = on!(c, |c| task_sessions::table
        .find(of.db())
        .select((task_sessions::sealed, task_sessions::kind))
        .first(c)
        .optional())?;
    let Some((sealed, kind)) = row else { return Ok(None) };
    let sealed = SealedTask::new(sealed).map_err(|error| StoreError::bad_row(c.operation(), error))?;
    Ok(Some((sealed, kind.into())))
}

/// A task has its session.
pub(crate) fn begun(tx: &mut Conn, task: TaskId, session: SessionId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(task_sessions::table.find(task.db()))
        .set(task_sessions::session_id.eq(session.db()))
        .execute(c))
    .map(drop)
}

/// Removes those of tasks that are deleted.
pub(crate) fn forget(tx: &mut Conn, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(task_sessions::table.filter(task_sessions::task_id.eq_any(ids))).execute(c)).map(drop)
}
