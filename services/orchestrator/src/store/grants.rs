//! The queries of a grant: which tasks a runner can lease, and what it needs to know to run them.
//!
//! The two searches for tasks are measured and written as SQL. A runner repeats them after every wake-up, so they must cost
//! the same for an account with a thousand runs and for a run with ten thousand tasks:
//! - PostgreSQL must look for a ready task of each run on its own. As a join or as `EXISTS`, the planner may decide to read
//!   the tasks of all accounts. A scalar subquery leaves it no choice.
//! - SQLite must use the index `tasks_ready`, which diesel cannot express. Otherwise it reads all tasks of a run in the
//!   order of their positions.
//!
//! `$1`, `$2`, … first appear in ascending order, because SQLite numbers its parameters in the order of appearance.

use std::collections::HashMap;

use diesel::dsl::case_when;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Bool, Integer, Text};
use ensemble_store_kit::types::{DbId, IntoDb, Uid};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{LeaseId, MachineId, RunId, TaskId, UserId};
use ensemble_types::leases::TaskOutput;
use ensemble_types::runs::{Isolation, Permission, Provider, TaskStatus};
use ensemble_types::time::Timestamp;

use super::columns::{IsolationColumn, PermissionColumn, ProviderColumn};
use super::runs::LockedRun;
use super::schema::{dependencies, leases, runs, task_specs, tasks};
use crate::domain::{RunnerRequest, Spending};

/// Whether the runner offers the provider of a task. The parameter is [`RunnerRequest::names`]. PostgreSQL splits it once, and
/// not for each task.
macro_rules! is_offered {
    (Pg, $names:literal) => {
        concat!(" AND provider = ANY ((SELECT string_to_array(", $names, ", ','))::text[])")
    };
    (Sqlite, $names:literal) => {
        concat!(" AND instr(',' || ", $names, " || ',', ',' || provider || ',') > 0")
    };
}

macro_rules! candidates {
    ($on:ident, $index:literal) => {
        concat!(
            "SELECT r.id FROM runs r WHERE r.owner_id = $1 AND r.finished_at IS NULL AND r.ready > 0 \
             AND (r.running < r.max_concurrency \
                  OR r.running - (SELECT count(*) FROM leases l \
                                  WHERE l.run_id = r.id AND l.ended_at IS NULL AND l.waiting_for = 'input') \
                     < r.max_concurrency) \
             AND r.status IN ('queued', 'running') \
             AND (r.pinned OR r.spread OR r.machine_id IS NULL OR r.machine_id = $2) \
             AND (SELECT 1 FROM tasks t",
            $index,
            " WHERE t.run_id = r.id AND t.owner_id = r.owner_id AND t.status = 'queued' AND t.open_deps = 0 AND t.not_before IS NULL \
             AND (t.refusals = 0 OR NOT EXISTS (SELECT 1 FROM task_refusals f \
                                                WHERE f.task_id = t.id AND f.machine_id = $2 AND NOT f.is_void)) \
             AND (t.machine_id = $2 \
                  OR (t.machine_id IS NULL AND (r.spread OR r.machine_id IS NULL OR r.machine_id = $2)))",
            is_offered!($on, "$3"),
            " AND t.provider NOT IN (SELECT h.provider FROM provider_holds h \
                                    WHERE h.owner_id = $1 AND h.machine_id = $2) \
                  LIMIT 1) = 1 ORDER BY r.served_at, r.id LIMIT $4"
        )
    };
}

#[derive(QueryableByName)]
struct RunIdRow {
    #[diesel(sql_type = Uid)]
    id: RunId,
}

/// The runs with a task for this runner, the one that was served longest ago first.
pub(crate) fn candidates(c: &mut Conn, request: &RunnerRequest) -> Result<Vec<RunId>, StoreError> {
    macro_rules! load {
        ($c:ident, $text:expr) => {
            cached(
                sql_query($text)
                    .bind::<Uid, _>(request.owner.db())
                    .bind::<Text, _>(request.machine.as_str())
                    .bind::<Text, _>(request.names())
                    .bind::<Integer, _>(i32::try_from(request.capacity).unwrap_or(i32::MAX)),
            )
            .load($c)
        };
    }
    let rows: Vec<RunIdRow> = on!(
        c,
        Pg | c | load!(c, candidates!(Pg, "")),
        Sqlite | c | load!(c, candidates!(Sqlite, " INDEXED BY tasks_ready"))
    )?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// A task that can be leased.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(crate) struct ReadyTask {
    #[diesel(sql_type = Uid)]
    pub(crate) id: TaskId,
    /// The fence of its last attempt.
    #[diesel(sql_type = Integer)]
    pub(crate) attempt: i32,
    /// How many of its attempts were handed back.
    #[diesel(sql_type = Integer)]
    pub(crate) refusals: i32,
    /// It is not pinned to a machine.
    #[diesel(sql_type = Bool)]
    pub(crate) unpinned: bool,
    /// Outputs of its dependencies are filled into its prompt.
    #[diesel(sql_type = Bool)]
    pub(crate) templated: bool,
}

macro_rules! ready_tasks {
    ($on:ident, $index:literal) => {
        concat!(
            "SELECT id, attempt, refusals, machine_id IS NULL AS unpinned, templated FROM tasks",
            $index,
            " WHERE run_id = $1 AND status = 'queued' AND open_deps = 0 AND not_before IS NULL \
             AND (machine_id = $2 OR (machine_id IS NULL AND $3))",
            is_offered!($on, "$4"),
            " AND (refusals = 0 OR NOT EXISTS (SELECT 1 FROM task_refusals f \
                                              WHERE f.task_id = tasks.id AND f.machine_id = $2 AND NOT f.is_void)) \
             AND NOT EXISTS (SELECT 1 FROM deleted_machines m \
                             WHERE m.owner_id = $5 AND m.machine_id = $2 AND m.registered_at IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM provider_holds h \
                             WHERE h.owner_id = $5 AND h.machine_id = $2 AND h.provider = tasks.provider) \
             AND owner_id = $5 ORDER BY position LIMIT $6"
        )
    };
}

/// The first tasks of a locked run that this runner can lease, in the order of their positions. There are none when its
/// machine was deleted. This is checked here, because it must be checked after the run was locked.
pub(crate) fn ready_tasks(
    tx: &mut Conn,
    run: &LockedRun,
    request: &RunnerRequest,
    limit: i32,
) -> Result<Vec<ReadyTask>, StoreError> {
    let machine = request.machine.as_str();
    let takes_unpinned = run.spread || run.machine.as_deref().is_none_or(|owner| owner == machine);
    macro_rules! load {
        ($c:ident, $text:expr) => {
            cached(
                sql_query($text)
                    .bind::<Uid, _>(run.id.db())
                    .bind::<Text, _>(machine)
                    .bind::<Bool, _>(takes_unpinned)
                    .bind::<Text, _>(request.names())
                    .bind::<Uid, _>(request.owner.db())
                    .bind::<Integer, _>(limit),
            )
            .load($c)
        };
    }
    on!(
        tx,
        Pg | c | load!(c, ready_tasks!(Pg, "")),
        Sqlite | c | load!(c, ready_tasks!(Sqlite, " INDEXED BY tasks_ready"))
    )
}

/// Writes that tasks of a run are leased to a machine.
pub(crate) fn lease_tasks(
    tx: &mut Conn,
    run: &LockedRun,
    of: &[TaskId],
    status: TaskStatus,
    machine: &MachineId,
) -> Result<(), StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    // A session of the agent can be resumed on the machine that it is on, and nowhere else.
    let session = case_when(tasks::ran_on.eq(machine.as_str()), tasks::provider_session_id);
    let rows = tasks::table.filter(tasks::id.eq_any(of).and(tasks::owner_id.eq(run.owner.db())));
    on!(tx, |c| diesel::update(rows)
        .set((
            tasks::status.eq(status.as_str()),
            tasks::attempt.eq(tasks::attempt + 1),
            tasks::version.eq(run.version),
            tasks::provider_session_id.eq(session),
            tasks::ran_on.eq(machine.as_str()),
            tasks::error_code.eq(None::<&str>),
            tasks::error_message.eq(None::<&str>),
        ))
        .execute(c))?;
    Ok(())
}

/// What a runner needs to know to run the task of a lease.
#[derive(Clone, Debug, Queryable)]
pub(crate) struct LeasedTask {
    pub(crate) lease: LeaseId,
    /// Its fence.
    pub(crate) attempt: i32,
    /// How many attempts before it were handed back.
    pub(crate) refusals: i32,
    pub(crate) expires_at: Timestamp,
    pub(crate) run: RunId,
    pub(crate) task: TaskId,
    #[diesel(deserialize_as = ProviderColumn)]
    pub(crate) provider: Provider,
    pub(crate) templated: bool,
    pub(crate) timeout_ms: i64,
    pub(crate) provider_session_id: Option<String>,
    pub(crate) prompt: String,
    pub(crate) model: Option<String>,
    pub(crate) working_directory: Option<String>,
    permission: Option<PermissionColumn>,
    allowed_tools: Option<String>,
    isolation: Option<IsolationColumn>,
    base: Option<String>,
    pub(crate) base_task: Option<TaskId>,
    /// The message to the agent after the end of the task, and the fence of the attempt before.
    pub(crate) follow_up: Option<String>,
    pub(crate) follow_up_fence: Option<i32>,
    max_cost_usd: Option<f64>,
    spent_usd: f64,
    session_cost_usd: f64,
    session_cost_of: Option<String>,
    pub(crate) traceparent: Option<String>,
}

impl LeasedTask {
    pub(crate) fn permission(&self) -> Option<Permission> {
        self.permission.map(Permission::from)
    }

    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation.map(Isolation::from).unwrap_or_default()
    }

    /// What the attempt may cost.
    pub(crate) fn max_cost_usd(&self) -> Option<f64> {
        Spending { max: self.max_cost_usd, spent: self.spent_usd }.rest()
    }

    /// What the attempts that used the session to resume have cost.
    pub(crate) fn resume_cost_usd(&self) -> Option<f64> {
        let is_known = self.provider_session_id.is_some() && self.provider_session_id == self.session_cost_of;
        is_known.then_some(self.session_cost_usd)
    }

    /// The git ref that a new worktree begins with.
    pub(crate) fn base(&self) -> Option<String> {
        self.base.clone().filter(|_| self.base_task.is_none())
    }

    pub(crate) fn allowed_tools(&self) -> Vec<String> {
        self.allowed_tools.as_deref().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }
}

/// Reads what the runner of these leases needs to know, in no particular order.
pub(crate) fn leased_tasks(tx: &mut Conn, of: &[LeaseId]) -> Result<Vec<LeasedTask>, StoreError> {
    let of: Vec<DbId> = of.iter().map(|id| id.db()).collect();
    let task = tasks::id.eq(leases::task_id).and(tasks::owner_id.eq(leases::owner_id));
    let spec = task_specs::task_id.eq(leases::task_id).and(task_specs::owner_id.eq(leases::owner_id));
    on!(tx, |c| leases::table
        .inner_join(tasks::table.on(task))
        .inner_join(task_specs::table.on(spec))
        .inner_join(runs::table)
        .filter(leases::id.eq_any(of))
        .select((
            leases::id,
            leases::attempt,
            leases::refusals,
            leases::expires_at,
            leases::run_id,
            leases::task_id,
            tasks::provider,
            tasks::templated,
            tasks::timeout_ms,
            tasks::provider_session_id,
            task_specs::prompt,
            task_specs::model,
            task_specs::working_directory,
            task_specs::permission,
            task_specs::allowed_tools,
            task_specs::isolation,
            task_specs::base,
            task_specs::base_task,
            task_specs::follow_up,
            task_specs::follow_up_fence,
            task_specs::max_cost_usd,
            task_specs::spent_usd,
            task_specs::session_cost_usd,
            task_specs::session_cost_of,
            runs::traceparent,
        ))
        .load(c))
}

/// The outputs of a task's dependencies that have a key, at most 4 MiB.
pub(crate) fn outputs_of_dependencies(
    tx: &mut Conn,
    owner: UserId,
    of: TaskId,
) -> Result<HashMap<String, TaskOutput>, StoreError> {
    let task = tasks::id.eq(dependencies::depends_on).and(tasks::owner_id.eq(dependencies::owner_id));
    let spec = task_specs::task_id.eq(dependencies::depends_on).and(task_specs::owner_id.eq(dependencies::owner_id));
    let rows: Vec<(String, TaskId, Option<String>)> = on!(tx, |c| dependencies::table
        .inner_join(tasks::table.on(task))
        .inner_join(task_specs::table.on(spec))
        .filter(dependencies::task_id.eq(of.db()).and(dependencies::owner_id.eq(owner.db())))
        .filter(task_specs::task_key.is_not_null())
        .select((task_specs::task_key.assume_not_null(), tasks::id, tasks::output_summary))
        .load(c))?;
    let output = |(key, task_id, output): (String, TaskId, Option<String>)| {
        (key, TaskOutput { task_id, output: output.unwrap_or_default() })
    };
    Ok(rows.into_iter().map(output).collect())
}
