//! The rows of tasks. Every function that changes a task expects that the caller holds the lock of its run.

use std::time::Duration;

use diesel::dsl::{case_when, count_star};
use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, DbTime, IntoDb};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::changes::ReportedChanges;
use ensemble_types::ids::{MachineId, RunId, SessionId, TaskId, UserId};
use ensemble_types::runs::{Permission, PermissionDenials, Provider, TaskError, TaskStatus, Usage};
use ensemble_types::time::Timestamp;

use super::columns::{ProviderColumn, TaskStatusColumn};
use super::runs::LockedRun;
use super::schema::{dependencies, tasks};
use super::usage::{bounded, signed};
use super::{permissions, task_changes};
use crate::domain::Retry;

/// What the rules need to know about a task whose run is locked.
#[derive(Clone, Debug)]
pub(crate) struct LockedTask {
    pub(crate) id: TaskId,
    owner: UserId,
    pub(crate) status: TaskStatus,
    /// The fence of its last attempt.
    pub(crate) attempt: i32,
    pub(crate) provider: Provider,
    /// The machine that it is pinned to.
    pub(crate) pin: Option<String>,
    pub(crate) failures: i32,
    pub(crate) losses: i32,
    pub(crate) retry: Retry,
    pub(crate) dependents: i32,
    pub(crate) timeout: Duration,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = tasks)]
pub(super) struct LockedRow {
    id: TaskId,
    owner_id: UserId,
    #[diesel(deserialize_as = TaskStatusColumn)]
    status: TaskStatus,
    attempt: i32,
    #[diesel(deserialize_as = ProviderColumn)]
    provider: Provider,
    machine_id: Option<String>,
    failures: i32,
    losses: i32,
    max_attempts: i32,
    backoff_ms: i64,
    backoff_factor: f64,
    dependents: i32,
    timeout_ms: i64,
}

impl From<LockedRow> for LockedTask {
    fn from(row: LockedRow) -> Self {
        let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Self {
            id: row.id,
            owner: row.owner_id,
            status: row.status,
            attempt: row.attempt,
            provider: row.provider,
            pin: row.machine_id,
            failures: row.failures,
            losses: row.losses,
            retry: Retry {
                max_attempts: row.max_attempts,
                backoff: millis(row.backoff_ms),
                factor: row.backoff_factor,
            },
            dependents: row.dependents,
            timeout: millis(row.timeout_ms),
        }
    }
}

/// The runner of an attempt has started, or resumed, its work on the task.
pub(crate) fn start(tx: &mut Conn, task: &LockedTask, version: i64, now: Timestamp) -> Result<(), StoreError> {
    let row = tasks::table.find(task.id.db()).filter(tasks::owner_id.eq(task.owner.db()));
    on!(tx, |c| cached(diesel::update(row).set((
        tasks::status.eq(TaskStatus::Running.as_str()),
        tasks::version.eq(version),
        tasks::losses.eq(task.losses),
        tasks::started_at.eq(case_when(tasks::started_at.is_null(), Some(now.db())).otherwise(tasks::started_at)),
    )))
    .execute(c))
    .map(drop)
}

/// What a runner reported about an attempt, apart from how it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptResults {
    pub(crate) exit_code: Option<i32>,
    pub(crate) output_summary: Option<String>,
    pub(crate) provider_session_id: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) permission: Option<Permission>,
    pub(crate) denials: Option<PermissionDenials>,
    pub(crate) changes: Option<ReportedChanges>,
    /// The live session that the task has begun.
    pub(crate) session: Option<SessionId>,
}

impl AttemptResults {
    /// What they count for the account's quota.
    pub(crate) fn text_bytes(&self) -> i64 {
        let summary = self.output_summary.as_ref().map_or(0, String::len);
        let denials = self.denials.as_ref().map_or(0, |denials| permissions::json(denials).len());
        let changes = self.changes.as_ref().map_or(0, |changes| task_changes::json(&changes.files).len());
        i64::try_from(summary + denials + changes).unwrap_or(i64::MAX)
    }
}

/// A task after the end of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct EndedTask {
    pub(crate) id: TaskId,
    pub(crate) owner: UserId,
    pub(crate) status: TaskStatus,
    pub(crate) version: i64,
    pub(crate) failures: i32,
    pub(crate) losses: i32,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) error: Option<TaskError>,
    pub(crate) results: AttemptResults,
    /// The attempt does not count: the machine handed it back before the agent was started, or the provider's limit is reached.
    pub(crate) uncounted: bool,
    pub(crate) now: Timestamp,
}

#[derive(AsChangeset)]
#[diesel(table_name = tasks, treat_none_as_null = true)]
struct EndChanges<'a> {
    status: &'static str,
    version: i64,
    failures: i32,
    losses: i32,
    not_before: Option<DbTime>,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    output_summary: Option<&'a str>,
    exit_code: Option<i32>,
    finished_at: Option<DbTime>,
}

/// A column with this added to it, where nothing counts as zero, and so does what is near the end of the column.
macro_rules! plus {
    ($column:path, $more:expr, $bound:expr) => {
        case_when($column.lt($bound), $column + $more).otherwise(Some($more))
    };
}

/// Writes a task after the end of an attempt.
pub(crate) fn end_attempt(tx: &mut Conn, task: &EndedTask) -> Result<(), StoreError> {
    // The sum of all attempts. What none of them has reported stays unknown.
    let usage = bounded(task.results.usage.unwrap_or_default());
    let spent = (
        usage.input_tokens.map(|count| tasks::input_tokens.eq(plus!(tasks::input_tokens, signed(count), 1_i64 << 60))),
        usage
            .output_tokens
            .map(|count| tasks::output_tokens.eq(plus!(tasks::output_tokens, signed(count), 1_i64 << 60))),
        usage.cost_usd.map(|cost| tasks::cost_usd.eq(plus!(tasks::cost_usd, cost, 1e15))),
    );
    let changes = EndChanges {
        status: task.status.as_str(),
        version: task.version,
        failures: task.failures,
        losses: task.losses,
        not_before: task.not_before.db(),
        error_code: task.error.as_ref().map(|error| error.code.as_str()),
        error_message: task.error.as_ref().map(|error| error.message.as_str()),
        output_summary: task.results.output_summary.as_deref(),
        exit_code: task.results.exit_code,
        finished_at: task.status.is_terminal().then_some(task.now).db(),
    };
    let started_at = case_when(tasks::started_at.is_null(), Some(task.now.db())).otherwise(tasks::started_at);
    // A report without a session keeps the session of an earlier attempt, which the next attempt can resume.
    let session = task.results.provider_session_id.as_deref().map(|session| tasks::provider_session_id.eq(session));
    let row = tasks::table.find(task.id.db()).filter(tasks::owner_id.eq(task.owner.db()));
    on!(tx, |c| cached(diesel::update(row).set((
        changes,
        session,
        spent,
        tasks::refusals.eq(tasks::refusals + i32::from(task.uncounted)),
        tasks::started_at.eq(started_at)
    )))
    .execute(c))?;
    permissions::save(tx, task.owner, task.id, task.results.permission, task.results.denials.as_ref())
}

/// Records the agent's session of the running attempt. It is no change that the owner waits for.
pub(crate) fn set_session(tx: &mut Conn, owner: UserId, task: TaskId, session: &str) -> Result<(), StoreError> {
    let is_other = tasks::provider_session_id.is_null().or(tasks::provider_session_id.ne(session));
    let row = tasks::table.find(task.db()).filter(tasks::owner_id.eq(owner.db()).and(is_other));
    on!(tx, |c| diesel::update(row).set(tasks::provider_session_id.eq(session)).execute(c)).map(drop)
}

/// Counts down the open dependencies of tasks. With a `version` they become ready and change with this version.
pub(crate) fn meet_dependencies(
    tx: &mut Conn,
    owner: UserId,
    of: &[TaskId],
    met: i32,
    version: Option<i64>,
) -> Result<(), StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(owner.db()))))
        .set((tasks::open_deps.eq(tasks::open_deps - met), version.map(|version| tasks::version.eq(version))))
        .execute(c))
    .map(drop)
}

/// Fails queued tasks of a run for one reason.
pub(crate) fn fail_queued(
    tx: &mut Conn,
    run: &LockedRun,
    of: &[TaskId],
    status: TaskStatus,
    error: &TaskError,
) -> Result<(), StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(run.owner.db()))))
        .set((
            tasks::status.eq(status.as_str()),
            tasks::version.eq(run.version),
            tasks::finished_at.eq(run.now.db()),
            tasks::not_before.eq(None::<DbTime>),
            tasks::error_code.eq(&error.code),
            tasks::error_message.eq(&error.message),
        ))
        .execute(c))
    .map(drop)
}

/// Cancels queued tasks of a run, at most `limit`. Returns how many.
pub(crate) fn cancel_queued(tx: &mut Conn, run: &LockedRun, to: TaskStatus, limit: i64) -> Result<usize, StoreError> {
    let queued: Vec<TaskId> = on!(tx, |c| tasks::table
        .filter(tasks::run_id.eq(run.id.db()).and(tasks::owner_id.eq(run.owner.db())))
        .filter(tasks::status.eq(TaskStatus::Queued.as_str()))
        .order(tasks::position)
        .limit(limit)
        .select(tasks::id)
        .load(c))?;
    let of: Vec<DbId> = queued.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(run.owner.db()))))
        .set((
            tasks::status.eq(to.as_str()),
            tasks::version.eq(run.version),
            tasks::finished_at.eq(run.now.db()),
            tasks::not_before.eq(None::<DbTime>),
        ))
        .execute(c))
}

/// What a task loses when its run is retried.
#[derive(AsChangeset)]
#[diesel(table_name = tasks, treat_none_as_null = true)]
struct RetryChanges {
    status: &'static str,
    version: i64,
    failures: i32,
    losses: i32,
    error_code: Option<String>,
    error_message: Option<String>,
    output_summary: Option<String>,
    exit_code: Option<i32>,
    started_at: Option<DbTime>,
    finished_at: Option<DbTime>,
}

/// The states of a task that a retry queues again.
const WITHOUT_SUCCESS: [TaskStatus; 3] = [TaskStatus::Failed, TaskStatus::Cancelled, TaskStatus::DependencyFailed];

/// A task that may have to be queued again.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct Placed {
    pub(crate) id: TaskId,
    status: TaskStatusColumn,
    version: i64,
    /// The machine that it is pinned to.
    pub(crate) pin: Option<String>,
}

impl Placed {
    /// It ended without completing, before the run had this version.
    pub(crate) fn failed_before(&self, version: i64) -> bool {
        WITHOUT_SUCCESS.contains(&self.status.into()) && self.version < version
    }
}

/// `count` tasks of a run from this position on. Positions have no gaps.
pub(crate) fn placed(tx: &mut Conn, run: &LockedRun, from: i32, count: i32) -> Result<Vec<Placed>, StoreError> {
    on!(tx, |c| tasks::table
        .filter(tasks::run_id.eq(run.id.db()).and(tasks::owner_id.eq(run.owner.db())))
        .filter(tasks::position.ge(from).and(tasks::position.lt(from.saturating_add(count))))
        .order(tasks::position)
        .select((tasks::id, tasks::status, tasks::version, tasks::machine_id))
        .load(c))
}

/// Queues tasks of a run again that ended without completing.
pub(crate) fn requeue(tx: &mut Conn, run: &LockedRun, of: &[TaskId], queued: TaskStatus) -> Result<(), StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let changes = RetryChanges {
        status: queued.as_str(),
        version: run.version,
        failures: 0,
        losses: 0,
        error_code: None,
        error_message: None,
        output_summary: None,
        exit_code: None,
        started_at: None,
        finished_at: None,
    };
    let rows = tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(run.owner.db())));
    on!(tx, |c| diesel::update(rows).set(changes).execute(c)).map(drop)
}

/// For which providers and machines the tasks of a run wait that are queued, or would be after a retry.
pub(crate) fn waiting_for(tx: &mut Conn, run: &LockedRun) -> Result<Vec<(Provider, Option<String>)>, StoreError> {
    let states = WITHOUT_SUCCESS.into_iter().chain([TaskStatus::Queued]).map(TaskStatus::as_str);
    let rows: Vec<(ProviderColumn, Option<String>)> = on!(tx, |c| tasks::table
        .filter(tasks::run_id.eq(run.id.db()).and(tasks::owner_id.eq(run.owner.db())))
        .filter(tasks::status.eq_any(states.clone()))
        .select((tasks::provider, tasks::machine_id))
        .distinct()
        .load(c))?;
    Ok(rows.into_iter().map(|(provider, machine)| (provider.into(), machine)).collect())
}

/// The machines that tasks of an account's run are pinned to.
pub(crate) fn pins(c: &mut Conn, owner: UserId, run: RunId) -> Result<Vec<MachineId>, StoreError> {
    let names: Vec<String> = on!(c, |c| tasks::table
        .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
        .filter(tasks::machine_id.is_not_null())
        .select(tasks::machine_id.assume_not_null())
        .distinct()
        .load(c))?;
    names.iter().map(|name| name.parse().map_err(|error| StoreError::bad_row(c.operation(), error))).collect()
}

/// For each of these tasks with dependencies that have not completed: how many.
pub(crate) fn open_dependencies(tx: &mut Conn, owner: UserId, of: &[TaskId]) -> Result<Vec<(TaskId, i64)>, StoreError> {
    let earlier = tasks::id.eq(dependencies::depends_on).and(tasks::owner_id.eq(dependencies::owner_id));
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| dependencies::table
        .inner_join(tasks::table.on(earlier))
        .filter(dependencies::task_id.eq_any(of).and(dependencies::owner_id.eq(owner.db())))
        .filter(tasks::status.ne(TaskStatus::Completed.as_str()))
        .group_by(dependencies::task_id)
        .select((dependencies::task_id, count_star()))
        .load(c))
}

/// Sets how many dependencies of these tasks are open.
pub(crate) fn set_open_dependencies(tx: &mut Conn, owner: UserId, of: &[TaskId], open: i32) -> Result<(), StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let rows = tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(owner.db())));
    on!(tx, |c| diesel::update(rows).set(tasks::open_deps.eq(open)).execute(c)).map(drop)
}

/// The tasks whose pause before the next attempt is over, with their runs.
pub(crate) fn due_pauses(c: &mut Conn, now: Timestamp, limit: i64) -> Result<Vec<(RunId, TaskId)>, StoreError> {
    on!(c, |c| tasks::table
        .filter(tasks::not_before.le(now.db()))
        .order(tasks::not_before)
        .select((tasks::run_id, tasks::id))
        .limit(limit)
        .load(c))
}

/// When the next pause ends.
pub(crate) fn next_pause_end(c: &mut Conn) -> Result<Option<Timestamp>, StoreError> {
    let found: Option<Option<Timestamp>> = on!(c, |c| tasks::table
        .filter(tasks::not_before.is_not_null())
        .order(tasks::not_before)
        .select(tasks::not_before)
        .first(c)
        .optional())?;
    Ok(found.flatten())
}

/// Ends the pauses of these tasks that are over. Returns how many.
pub(crate) fn end_pauses(tx: &mut Conn, run: &LockedRun, of: &[TaskId]) -> Result<usize, StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    on!(tx, |c| diesel::update(tasks::table)
        .filter(tasks::id.eq_any(of).and(tasks::run_id.eq(run.id.db())).and(tasks::owner_id.eq(run.owner.db())))
        .filter(tasks::not_before.le(run.now.db()))
        .set((tasks::not_before.eq(None::<DbTime>), tasks::version.eq(run.version)))
        .execute(c))
}
