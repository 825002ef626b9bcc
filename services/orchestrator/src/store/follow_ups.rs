//! What was said to tasks after their end, and what follows for the tasks that depend on them.

use diesel::dsl::{count_star, exists, select};
use diesel::prelude::*;
use diesel::sql_query;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{TaskId, UserId};
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

pub(crate) fn find(tx: &mut Conn, run: &LockedRun, task: TaskId) -> Result<Option<Addressed>, StoreError> {
    let spec = task_specs::task_id.eq(tasks::id).and(task_specs::owner_id.eq(tasks::owner_id));
    on!(tx, |c| tasks::table
        .inner_join(task_specs::table.on(spec))
        .filter(tasks::id.eq(task.db()).and(tasks::run_id.eq(run.id.db())).and(tasks::owner_id.eq(run.owner.db())))
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
pub(crate) fn record(tx: &mut Conn, owner: UserId, task: TaskId, message: &str) -> Result<bool, StoreError> {
    let row = (
        task_messages::task_id.eq(task.db()),
        task_messages::owner_id.eq(owner.db()),
        task_messages::message_id.eq(message),
    );
    let recorded =
        on!(tx, |c| diesel::insert_into(task_messages::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(recorded > 0)
}

/// Whether a task that depends on this one is being run.
pub(crate) fn dependent_runs(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<bool, StoreError> {
    let running = [TaskStatus::Dispatching, TaskStatus::Running].map(TaskStatus::as_str);
    let later = tasks::id.eq(dependencies::task_id).and(tasks::owner_id.eq(dependencies::owner_id));
    let found = dependencies::table
        .inner_join(tasks::table.on(later))
        .filter(dependencies::depends_on.eq(task.db()).and(dependencies::owner_id.eq(owner.db())))
        .filter(tasks::status.eq_any(running));
    on!(tx, |c| select(exists(found)).get_result(c))
}

/// Whether a task that this one depends on has not completed.
pub(crate) fn dependency_open(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<bool, StoreError> {
    let earlier = tasks::id.eq(dependencies::depends_on).and(tasks::owner_id.eq(dependencies::owner_id));
    let found = dependencies::table
        .inner_join(tasks::table.on(earlier))
        .filter(dependencies::task_id.eq(task.db()).and(dependencies::owner_id.eq(owner.db())))
        .filter(tasks::status.ne(TaskStatus::Completed.as_str()));
    on!(tx, |c| select(exists(found)).get_result(c))
}

/// What a task loses when it continues.
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

/// Queues a task again for the machine that has its agent's session, with the message to the agent.
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
    let row = tasks::table.find(task.db()).filter(tasks::owner_id.eq(run.owner.db()));
    on!(tx, |c| diesel::update(row).set(changes).execute(c))?;
    let message =
        (task_specs::follow_up.eq(text), task_specs::follow_up_fence.eq(addressed.fence), task_specs::stale.eq(false));
    let spec = task_specs::table.find(task.db()).filter(task_specs::owner_id.eq(run.owner.db()));
    on!(tx, |c| diesel::update(spec).set(message).execute(c))?;
    on!(tx, |c| diesel::update(runs::table.find(run.id.db())).set(runs::pinned.eq(true)).execute(c)).map(drop)
}

/// Lets the queued tasks that depend on this one wait for it again. Returns how many of them were ready.
pub(crate) fn hold_dependents(tx: &mut Conn, run: &LockedRun, task: TaskId) -> Result<usize, StoreError> {
    let later = tasks::id.eq(dependencies::task_id).and(tasks::owner_id.eq(dependencies::owner_id));
    let held: Vec<(TaskId, i32, Option<Timestamp>)> = on!(tx, |c| dependencies::table
        .inner_join(tasks::table.on(later))
        .filter(dependencies::depends_on.eq(task.db()).and(dependencies::owner_id.eq(run.owner.db())))
        .filter(tasks::status.eq(TaskStatus::Queued.as_str()))
        .select((tasks::id, tasks::open_deps, tasks::not_before))
        .load(c))?;
    if held.is_empty() {
        return Ok(0);
    }
    let ids: Vec<DbId> = held.iter().map(|(id, ..)| id.db()).collect();
    let rows = tasks::table.filter(tasks::id.eq_any(ids).and(tasks::owner_id.eq(run.owner.db())));
    on!(tx, |c| diesel::update(rows)
        .set((tasks::open_deps.eq(tasks::open_deps + 1), tasks::version.eq(run.version)))
        .execute(c))?;
    Ok(held.iter().filter(|(_, open, pause)| *open == 0 && pause.is_none()).count())
}

/// Marks the tasks that depend on this one, directly or not, and have ended after they had begun.
pub(crate) fn mark_stale(tx: &mut Conn, owner: UserId, task: TaskId) -> Result<(), StoreError> {
    const MARK: &str = "WITH RECURSIVE later (id) AS (\
            SELECT task_id FROM dependencies WHERE depends_on = $1 AND owner_id = $2 \
            UNION SELECT d.task_id FROM dependencies d JOIN later ON d.depends_on = later.id AND d.owner_id = $2) \
        UPDATE task_specs SET stale = true WHERE owner_id = $2 AND task_id IN (\
            SELECT t.id FROM tasks t JOIN later ON later.id = t.id AND t.owner_id = $2 \
            WHERE t.attempt > t.refusals AND t.status <> 'queued')";
    on!(tx, |c| sql_query(MARK).bind::<Uid, _>(task.db()).bind::<Uid, _>(owner.db()).execute(c)).map(drop)
}

/// Tasks that are retried work with what there is now.
pub(crate) fn clear_stale(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let specs = task_specs::table.filter(task_specs::task_id.eq_any(ids).and(task_specs::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::update(specs.filter(task_specs::stale.eq(true))).set(task_specs::stale.eq(false)).execute(c))
        .map(drop)
}

/// Whether the agent of an attempt after this fence was started, so that it got the message.
pub(crate) fn was_delivered(tx: &mut Conn, owner: UserId, task: TaskId, fence: i32) -> Result<bool, StoreError> {
    let begun: i64 = on!(tx, |c| leases::table
        .filter(leases::task_id.eq(task.db()).and(leases::owner_id.eq(owner.db())))
        .filter(leases::attempt.gt(fence))
        .filter(leases::beaten_at.is_not_null().and(leases::refused.eq(false)))
        .select(count_star())
        .first(c))?;
    Ok(begun > 0)
}

/// Forgets the messages of tasks that are deleted.
pub(crate) fn forget(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<(), StoreError> {
    let ids: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = task_messages::table.filter(task_messages::task_id.eq_any(ids));
    on!(tx, |c| diesel::delete(rows.filter(task_messages::owner_id.eq(owner.db()))).execute(c)).map(drop)
}
