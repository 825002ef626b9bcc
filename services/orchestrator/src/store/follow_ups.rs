//! What was said to tasks after their end, and what follows for the tasks that depend on them.

use diesel::dsl::{count_star, exists, select};
use diesel::prelude::*;
use diesel::sql_query;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::TaskStatus;
use ensemble_types::time::Timestamp;

use super::columns::TaskStatusColumn;
use super::runs::LockedRun;
use super::schema::{dependencies, leases, runs, task_messages, task_specs, tasks};

/// A task that something is said to. Its run is locked.
#[derive(Debug, Queryable)]
pub(crate) struct Addressed {
    #[diesel(deserialize_as = TaskStatusColumn)]
    pub(crate) status: TaskStatus,
    pub(crate) position: i32,
    /// The fence of its last attempt.
    pub(crate) fence: i32,
    /// The machine of its last attempt, which has the agent's session.
    pub(crate) machine: Option<String>,
    pub(crate) session: Option<String>,
    /// What was said before.
    pub(crate) follow_up: Option<String>,
}

pub(crate) fn find(tx: &mut Conn, run: RunId, task: TaskId) -> Result<Option<Addressed>, StoreError> {
    on!(tx, |c| tasks::table
        .inner_join(task_specs::table)
        .filter(tasks::id.eq(task.db()).and(tasks::run_id.eq(run.db())))
        .select((
            tasks::status,
            tasks::position,
            tasks::attempt,
            tasks::ran_on,
            tasks::provider_session_id,
            task_specs::follow_up,
        ))
        .first(c)
        .optional())
}

/// Records the id of a message. False when the task has had it.
pub(crate) fn record(tx: &mut Conn, task: TaskId, message: &str) -> Result<bool, StoreError> {
    let row = (task_messages::task_id.eq(task.db()), task_messages::message_id.eq(message));
    let recorded =
        on!(tx, |c| diesel::insert_into(task_messages::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(recorded > 0)
}

/// Whether a task that depends on this one is being run.
pub(crate) fn dependent_runs(tx: &mut Conn, task: TaskId) -> Result<bool, StoreError> {
    let running = [TaskStatus::Dispatching, TaskStatus::Running].map(TaskStatus::as_str);
    let found = dependencies::table
        .inner_join(tasks::table.on(tasks::id.eq(dependencies::task_id)))
        .filter(dependencies::depends_on.eq(task.db()).and(tasks::status.eq_any(running)));
    on!(tx, |c| select(exists(found)).get_result(c))
}

/// Whether a task that this one depends on has not completed.
pub(crate) fn dependency_open(tx: &mut Conn, task: TaskId) -> Result<bool, StoreError> {
    let found = dependencies::table
        .inner_join(tasks::table.on(tasks::id.eq(dependencies::depends_on)))
        .filter(dependencies::task_id.eq(task.db()).and(tasks::status.ne(TaskStatus::Completed.as_str())));
    on!(tx, |c| select(exists(found)).get_result(c))
}

/// What a task loses when it goes on.
#[derive(AsChangeset)]
#[diesel(table_name = tasks, treat_none_as_null = true)]
struct Continued<'a> {
    status: &'static str,
    version: i64,
    machine_id: Option<&'a str>,
    open_deps: i32,
    failures: i32,
    losses: i32,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    output_summary: Option<&'a str>,
    exit_code: Option<i32>,
    started_at: Option<DbTime>,
    finished_at: Option<DbTime>,
}

/// Queues a task again for the machine that has its agent's session, with what the agent is told.
pub(crate) fn queue(
    tx: &mut Conn,
    run: &LockedRun,
    task: TaskId,
    addressed: &Addressed,
    queued: TaskStatus,
    text: &str,
) -> Result<(), StoreError> {
    let changes = Continued {
        status: queued.as_str(),
        version: run.version,
        machine_id: addressed.machine.as_deref(),
        open_deps: 0,
        failures: 0,
        losses: 0,
        error_code: None,
        error_message: None,
        output_summary: None,
        exit_code: None,
        started_at: None,
        finished_at: None,
    };
    on!(tx, |c| diesel::update(tasks::table.find(task.db())).set(changes).execute(c))?;
    let told =
        (task_specs::follow_up.eq(text), task_specs::follow_up_fence.eq(addressed.fence), task_specs::stale.eq(false));
    on!(tx, |c| diesel::update(task_specs::table.find(task.db())).set(told).execute(c))?;
    on!(tx, |c| diesel::update(runs::table.find(run.id.db())).set(runs::pinned.eq(true)).execute(c)).map(drop)
}

/// Lets the queued tasks that depend on this one wait for it again. Returns how many of them were ready.
pub(crate) fn hold_dependents(tx: &mut Conn, run: &LockedRun, task: TaskId) -> Result<usize, StoreError> {
    let held: Vec<(TaskId, i32, Option<Timestamp>)> = on!(tx, |c| dependencies::table
        .inner_join(tasks::table.on(tasks::id.eq(dependencies::task_id)))
        .filter(dependencies::depends_on.eq(task.db()).and(tasks::status.eq(TaskStatus::Queued.as_str())))
        .select((tasks::id, tasks::open_deps, tasks::not_before))
        .load(c))?;
    if held.is_empty() {
        return Ok(0);
    }
    let ids: Vec<DbId> = held.iter().map(|(id, ..)| id.db()).collect();
    on!(tx, |c| diesel::update(tasks::table.filter(tasks::id.eq_any(ids)))
        .set((tasks::open_deps.eq(tasks::open_deps + 1), tasks::version.eq(run.version)))
        .execute(c))?;
    Ok(held.iter().filter(|(_, open, pause)| *open == 0 && pause.is_none()).count())
}

/// Marks the tasks that depend on this one, directly or not, and have ended after they had begun.
pub(crate) fn mark_stale(tx: &mut Conn, task: TaskId) -> Result<(), StoreError> {
    const MARK: &str = "WITH RECURSIVE later (id) AS (\
            SELECT task_id FROM dependencies WHERE depends_on = $1 \
            UNION SELECT d.task_id FROM dependencies d JOIN later ON d.depends_on = later.id) \
        UPDATE task_specs SET stale = true WHERE task_id IN (\
            SELECT t.id FROM tasks t JOIN later ON later.id = t.id \
            WHERE t.attempt > t.refusals AND t.status <> 'queued')";
    on!(tx, |c| sql_query(MARK).bind::<Uid, _>(task.db()).execute(c)).map(drop)
}

/// Tasks that are retried work with what there is now.
pub(crate) fn clear_stale(tx: &mut Conn, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let stale = task_specs::table.filter(task_specs::task_id.eq_any(ids).and(task_specs::stale.eq(true)));
    on!(tx, |c| diesel::update(stale).set(task_specs::stale.eq(false)).execute(c)).map(drop)
}

/// Whether the agent of an attempt after this fence was started, so that it was told.
pub(crate) fn was_told(tx: &mut Conn, task: TaskId, fence: i32) -> Result<bool, StoreError> {
    let begun: i64 = on!(tx, |c| leases::table
        .filter(leases::task_id.eq(task.db()).and(leases::attempt.gt(fence)))
        .filter(leases::beaten_at.is_not_null().and(leases::refused.eq(false)))
        .select(count_star())
        .first(c))?;
    Ok(begun > 0)
}

/// Forgets the messages of tasks that are deleted.
pub(crate) fn forget(tx: &mut Conn, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::delete(task_messages::table.filter(task_messages::task_id.eq_any(ids))).execute(c)).map(drop)
}
