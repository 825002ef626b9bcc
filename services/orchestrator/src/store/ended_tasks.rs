//! Tasks that have ended, and whose dependents are not all notified. A task can have 10,000 of them, so a transaction notifies some,
//! and the next one continues behind the last that was notified.

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;

use super::columns::TaskStatusColumn;
use super::runs::LockedRun;
use super::schema::{dependencies, ended_tasks, tasks};

/// A task that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) id: TaskId,
    pub(crate) has_completed: bool,
    /// The last of its dependents that is notified, in the order of their ids.
    pub(crate) notified_until: Option<TaskId>,
}

/// A task that depends on one that has ended.
#[derive(Clone, Copy, Debug, Queryable)]
pub(crate) struct Dependent {
    /// The task that has ended.
    pub(crate) of: TaskId,
    pub(crate) id: TaskId,
    status: TaskStatusColumn,
    pub(crate) open_deps: i32,
    /// How many tasks depend on it.
    pub(crate) dependents: i32,
}

impl Dependent {
    pub(crate) fn is_queued(&self) -> bool {
        TaskStatus::from(self.status) == TaskStatus::Queued
    }
}

#[derive(Insertable)]
#[diesel(table_name = ended_tasks, treat_none_as_default_value = false)]
struct Row {
    run_id: DbId,
    task_id: DbId,
    owner_id: DbId,
    notified_until: Option<DbId>,
}

/// The first dependents of some tasks that are not notified, in the order of both ids. All of the tasks are notified until the same one.
pub(crate) fn dependents(
    tx: &mut Conn,
    owner: UserId,
    of: &[TaskId],
    notified_until: Option<TaskId>,
    limit: i64,
) -> Result<Vec<Dependent>, StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let later = tasks::id.eq(dependencies::task_id).and(tasks::owner_id.eq(dependencies::owner_id));
    on!(tx, |c| {
        let mut query = dependencies::table
            .inner_join(tasks::table.on(later))
            .filter(dependencies::depends_on.eq_any(&of).and(dependencies::owner_id.eq(owner.db())))
            .order((dependencies::depends_on, dependencies::task_id))
            .limit(limit)
            .select((dependencies::depends_on, tasks::id, tasks::status, tasks::open_deps, tasks::dependents))
            .into_boxed();
        if let Some(last) = notified_until {
            query = query.filter(dependencies::task_id.gt(last.db()));
        }
        query.load(c)
    })
}

/// Takes some of the tasks of a run out of the table, to tell their dependents.
pub(crate) fn take(tx: &mut Conn, run: &LockedRun, limit: i64) -> Result<Vec<Ended>, StoreError> {
    let task = tasks::id.eq(ended_tasks::task_id).and(tasks::owner_id.eq(ended_tasks::owner_id));
    let rows: Vec<(TaskId, TaskStatusColumn, Option<TaskId>)> = on!(tx, |c| ended_tasks::table
        .inner_join(tasks::table.on(task))
        .filter(ended_tasks::run_id.eq(run.id.db()).and(ended_tasks::owner_id.eq(run.owner.db())))
        .order(ended_tasks::task_id)
        .limit(limit)
        .select((ended_tasks::task_id, tasks::status, ended_tasks::notified_until))
        .load(c))?;
    let ended = |(id, status, notified_until): (TaskId, TaskStatusColumn, Option<TaskId>)| {
        let has_completed = TaskStatus::from(status) == TaskStatus::Completed;
        Ended { id, has_completed, notified_until }
    };
    let taken: Vec<Ended> = rows.into_iter().map(ended).collect();
    let of: Vec<TaskId> = taken.iter().map(|ended| ended.id).collect();
    forget(tx, (run.owner, run.id), &of)?;
    Ok(taken)
}

/// Keeps tasks of a run whose dependents are to be notified later.
pub(crate) fn keep(tx: &mut Conn, run: &LockedRun, ended: &[Ended]) -> Result<(), StoreError> {
    let row = |ended: &Ended| Row {
        run_id: run.id.db(),
        task_id: ended.id.db(),
        owner_id: run.owner.db(),
        notified_until: ended.notified_until.map(|last| last.db()),
    };
    let rows: Vec<Row> = ended.iter().map(row).collect();
    on!(tx, |c| diesel::insert_into(ended_tasks::table).values(&rows).execute(c)).map(drop)
}

/// Forgets tasks whose dependents were notified, or that are deleted.
pub(crate) fn forget(tx: &mut Conn, (owner, run): (UserId, RunId), of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = ended_tasks::table.filter(ended_tasks::run_id.eq(run.db()).and(ended_tasks::task_id.eq_any(ids)));
    on!(tx, |c| diesel::delete(rows.filter(ended_tasks::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
