//! What devices of owners have signed about tasks: for the machines of the tasks, and what was signed as a task for its owner too.

use std::collections::HashMap;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{TaskId, UserId};
use ensemble_types::runs::{Signed, SignedBody, TaskSignature};
use ensemble_types::text::Blob;

use super::schema::{task_signatures, tasks};
use crate::domain::TaskDraft;

/// What was signed about a task. Of each there is one, the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    Task,
    Message,
    Order,
}

impl About {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Message => "message",
            Self::Order => "order",
        }
    }
}

#[derive(Insertable)]
#[diesel(table_name = task_signatures)]
struct NewRow<'a> {
    task_id: DbId,
    owner_id: DbId,
    kind: &'static str,
    key: &'a str,
    sig: &'a str,
    body: &'a str,
}

impl<'a> NewRow<'a> {
    fn of(owner: UserId, task: TaskId, about: About, signed: &'a Signed) -> Self {
        let Signed { signature: TaskSignature { key, sig }, signed_body: body } = signed;
        Self { task_id: task.db(), owner_id: owner.db(), kind: about.as_str(), key, sig, body }
    }
}

/// The columns of what was signed as a task, where it was.
pub(crate) type SignedRow = (Option<String>, Option<String>, Option<String>);

/// Joins what was signed as the task.
#[diesel::dsl::auto_type]
pub(crate) fn of_task() -> _ {
    task_signatures::task_id
        .eq(tasks::id)
        .and(task_signatures::owner_id.eq(tasks::owner_id))
        .and(task_signatures::kind.eq("task"))
}

/// Selects it.
#[diesel::dsl::auto_type]
pub(crate) fn signed() -> _ {
    (task_signatures::key.nullable(), task_signatures::sig.nullable(), task_signatures::body.nullable())
}

pub(crate) fn read(row: SignedRow, operation: &'static str) -> Result<Option<Signed>, StoreError> {
    match row {
        (Some(key), Some(sig), Some(body)) => parse((key, sig, body), operation).map(Some),
        _ => Ok(None),
    }
}

fn parse((key, sig, body): (String, String, String), operation: &'static str) -> Result<Signed, StoreError> {
    let bad = |error| StoreError::bad_row(operation, error);
    let signature = TaskSignature { key: Blob::new(key).map_err(bad)?, sig: Blob::new(sig).map_err(bad)? };
    Ok(Signed { signature, signed_body: SignedBody::new(body).map_err(bad)? })
}

/// Inserts what was signed with new tasks.
pub(crate) fn insert<'a>(tx: &mut Conn, owner: UserId, tasks: &'a [TaskDraft]) -> Result<(), StoreError> {
    /// Each row has up to 384 KiB.
    const CHUNK: usize = 50;
    let of = |task: &'_ TaskDraft| task.signed.is_some();
    let signed: Vec<&TaskDraft> = tasks.iter().filter(|task| of(task)).collect();
    for tasks in signed.chunks(CHUNK) {
        let row = |task: &'a TaskDraft| Some(NewRow::of(owner, task.id, About::Task, task.signed.as_ref()?));
        let rows: Vec<NewRow<'_>> = tasks.iter().copied().filter_map(row).collect();
        on!(tx, |c| diesel::insert_into(task_signatures::table).values(&rows).execute(c))?;
    }
    Ok(())
}

/// Puts this in the place of what was signed before. `None`: what is done now is not signed.
pub(crate) fn replace(
    tx: &mut Conn,
    owner: UserId,
    task: TaskId,
    about: About,
    signed: Option<&Signed>,
) -> Result<(), StoreError> {
    let before = task_signatures::table.find((task.db(), about.as_str()));
    on!(tx, |c| diesel::delete(before.filter(task_signatures::owner_id.eq(owner.db()))).execute(c))?;
    let Some(signed) = signed else { return Ok(()) };
    let row = NewRow::of(owner, task, about, signed);
    on!(tx, |c| diesel::insert_into(task_signatures::table).values(&row).execute(c)).map(drop)
}

/// What was signed about these tasks.
pub(crate) fn of_tasks(
    c: &mut Conn,
    owner: UserId,
    of: &[TaskId],
    about: About,
) -> Result<HashMap<TaskId, Signed>, StoreError> {
    if of.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows: Vec<(TaskId, String, String, String)> = on!(c, |c| task_signatures::table
        .filter(task_signatures::task_id.eq_any(ids).and(task_signatures::owner_id.eq(owner.db())))
        .filter(task_signatures::kind.eq(about.as_str()))
        .select((task_signatures::task_id, task_signatures::key, task_signatures::sig, task_signatures::body))
        .load(c))?;
    let operation = c.operation();
    rows.into_iter().map(|(task, key, sig, body)| Ok((task, parse((key, sig, body), operation)?))).collect()
}

/// The length of a body in bytes, as the account's quota counts it. 0 when nothing is signed.
pub(crate) fn stored(c: &mut Conn, owner: UserId, task: TaskId, about: About) -> Result<usize, StoreError> {
    Ok(of_tasks(c, owner, &[task], about)?.get(&task).map_or(0, |signed| signed.signed_body.len()))
}

/// Removes what was signed about tasks that are deleted.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = task_signatures::table.filter(task_signatures::task_id.eq_any(ids));
    on!(tx, |c| diesel::delete(rows.filter(task_signatures::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
