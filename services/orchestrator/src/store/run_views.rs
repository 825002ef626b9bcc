//! Reads runs and tasks as their owners see them.

use std::collections::HashMap;

use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::changes::{ChangesWaitFor, LeaseWaitsFor};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::runs::{
    ChangedTask, Isolation, Permission, Provider, Refusal, Run, RunStatus, Signed, Task, TaskChanges, TaskError,
    TaskStatus, Usage, WaitingFor,
};
use ensemble_types::time::Timestamp;

use super::columns::{IsolationColumn, PermissionColumn, ProviderColumn, TaskStatusColumn};
use super::permissions::{self, AttemptPermission};
use super::run_rows::RunRow;
use super::schema::{dependencies, runs, task_signatures, task_specs, tasks};
use super::signatures::{self, SignedRow};
use super::task_sessions::{self, OfTask};
use super::{leases, refusals, runners, task_changes};
use crate::domain::{ASKS_A_PERSON, Obstacles, Runner, directory_is_busy, waiting_for, waits_for_machine};

/// Which runs to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    Active,
    Terminal,
    Only(RunStatus),
}

/// The runs of an account, newest first, after the run that was created at this time and has this id.
pub(crate) fn list(
    c: &mut Conn,
    owner: UserId,
    filter: Filter,
    after: Option<(Timestamp, RunId)>,
    limit: i64,
) -> Result<Vec<Run>, StoreError> {
    let rows: Vec<RunRow> = on!(c, |c| {
        let mut query = runs::table
            .filter(runs::owner_id.eq(owner.db()))
            .order((runs::created_at.desc(), runs::id.desc()))
            .limit(limit)
            .select(RunRow::as_select())
            .into_boxed();
        query = match filter {
            Filter::All => query,
            Filter::Active => query.filter(runs::finished_at.is_null()),
            Filter::Terminal => query.filter(runs::finished_at.is_not_null()),
            Filter::Only(status) => query.filter(runs::status.eq(status.as_str())),
        };
        if let Some((at, id)) = after {
            let older = runs::created_at.lt(at.db());
            query = query.filter(older.or(runs::created_at.eq(at.db()).and(runs::id.lt(id.db()))));
        }
        query.load(c)
    })?;
    Ok(rows.into_iter().map(Run::from).collect())
}

/// A run without its tasks, and what decides what its tasks wait for.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    pub(crate) run: Run,
    /// The machine that runs the tasks without a `machineId`.
    machine: Option<String>,
    runners: Vec<Runner>,
    /// Its running tasks that wait for a person. Others may run meanwhile.
    asking: u32,
    owner: UserId,
}

/// Reads a run without its tasks.
pub(crate) fn run(c: &mut Conn, owner: UserId, id: RunId) -> Result<Option<RunView>, StoreError> {
    let row: Option<RunRow> = on!(c, |c| runs::table
        .find(id.db())
        .filter(runs::owner_id.eq(owner.db()))
        .select(RunRow::as_select())
        .first(c)
        .optional())?;
    let Some(row) = row else { return Ok(None) };
    let machine = row.machine_id.clone().filter(|_| !row.spread);
    let run = Run::from(row);
    let runners = if run.summary.queued > 0 { runners::of_account(c, owner)? } else { Vec::new() };
    let is_full = run.summary.queued > 0 && run.summary.running >= run.max_concurrency;
    let asking = if is_full { u32::try_from(task_sessions::asking(c, run.id)?).unwrap_or(0) } else { 0 };
    Ok(Some(RunView { run, machine, runners, asking, owner }))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = tasks)]
struct StateRow {
    id: TaskId,
    #[diesel(deserialize_as = TaskStatusColumn)]
    status: TaskStatus,
    attempt: i32,
    refusals: i32,
    open_deps: i32,
    not_before: Option<Timestamp>,
    #[diesel(deserialize_as = ProviderColumn)]
    provider: Provider,
    machine_id: Option<String>,
    ran_on: Option<String>,
    error_code: Option<String>,
    /// Its beginning: up to 500 tasks are read at once, for each reader.
    #[diesel(select_expression = sql(BEGINNING), select_expression_type = SqlLiteral<Nullable<Text>>)]
    error_message: Option<String>,
}

/// An error message of up to this many characters is whole in a change.
const BEGINNING: &str = "substr(tasks.error_message, 1, 512)";

impl StateRow {
    fn changed_task(
        self,
        reference: Ref,
        view: &RunView,
        refusals: &[Refusal],
        waits: Option<LeaseWaitsFor>,
    ) -> ChangedTask {
        let obstacles = Obstacles {
            status: self.status,
            open_deps: self.open_deps,
            paused_until: self.not_before,
            provider: self.provider,
            machine: self.machine_id.as_deref().or(view.machine.as_deref()),
            is_pinned: self.machine_id.is_some(),
            refusals,
            full_run: Some(view.run.summary.running.saturating_sub(view.asking))
                .filter(|running| *running >= view.run.max_concurrency),
        };
        let (waiting_for, waiting_reason) = waiting_for(obstacles, &view.runners).unzip();
        let machine = self.ran_on.or(self.machine_id);
        let (waiting_for, waiting_reason) = match waits {
            Some(LeaseWaitsFor::Directory) => (Some(WaitingFor::Directory), machine.as_deref().map(directory_is_busy)),
            Some(LeaseWaitsFor::Input) => (Some(WaitingFor::Input), Some(ASKS_A_PERSON.to_owned())),
            None => (waiting_for, waiting_reason),
        };
        ChangedTask {
            id: self.id,
            reference,
            status: self.status,
            attempt: u32::try_from(self.attempt - self.refusals).unwrap_or(0),
            waiting_for,
            waiting_reason,
            machine_id: machine.and_then(|id| id.parse().ok()),
            // A task that is retried keeps the error of its last attempt until the next one starts.
            error: self.error_code.map(|code| TaskError { code, message: self.error_message.unwrap_or_default() }),
        }
    }
}

/// The tasks of a run that changed after a version, at most `limit`.
pub(crate) fn changed_tasks(
    c: &mut Conn,
    view: &RunView,
    since: i64,
    limit: i64,
) -> Result<Vec<ChangedTask>, StoreError> {
    let spec = task_specs::task_id.eq(tasks::id).and(task_specs::owner_id.eq(tasks::owner_id));
    let rows: Vec<(StateRow, Ref)> = on!(c, |c| tasks::table
        .inner_join(task_specs::table.on(spec))
        .filter(tasks::run_id.eq(view.run.id.db()).and(tasks::owner_id.eq(view.owner.db())))
        .filter(tasks::version.gt(since))
        .order((tasks::version, tasks::position))
        .select((StateRow::as_select(), task_specs::reference))
        .limit(limit)
        .load(c))?;
    let handed_back: Vec<TaskId> = rows.iter().filter(|(row, _)| row.refusals > 0).map(|(row, _)| row.id).collect();
    let refusals = refusals::standing(c, view.owner, &handed_back)?;
    let waiting = leases::waiting(c, &running(rows.iter().map(|(row, _)| row)))?;
    let of = |id: TaskId| refusals.get(&id).map_or(&[][..], Vec::as_slice);
    Ok(rows
        .into_iter()
        .map(|(row, reference)| {
            let (refusals, waits) = (of(row.id), waiting.get(&row.id).copied());
            row.changed_task(reference, view, refusals, waits)
        })
        .collect())
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = tasks)]
struct ResultRow {
    error_message: Option<String>,
    output_summary: Option<String>,
    exit_code: Option<i32>,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
    cost_usd: Option<f64>,
    provider_session_id: Option<String>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = task_specs)]
struct SpecRow {
    reference: Ref,
    task_key: Option<String>,
    title: Option<String>,
    prompt: String,
    model: Option<String>,
    working_directory: Option<String>,
    permission: Option<PermissionColumn>,
    allowed_tools: Option<String>,
    isolation: Option<IsolationColumn>,
    base: Option<String>,
    stale: bool,
    max_cost_usd: Option<f64>,
}

impl SpecRow {
    /// Every other task has a prompt.
    fn is_sealed(&self) -> bool {
        self.prompt.is_empty()
    }
}

/// Reads the tasks of a run whose positions lie in this range.
pub(crate) fn tasks(c: &mut Conn, view: &RunView, from: i32, until: i32) -> Result<Vec<Task>, StoreError> {
    let of_run = tasks::run_id.eq(view.run.id.db()).and(tasks::owner_id.eq(view.owner.db()));
    let part = of_run.and(tasks::position.ge(from)).and(tasks::position.lt(until));
    let spec = task_specs::task_id.eq(tasks::id).and(task_specs::owner_id.eq(tasks::owner_id));
    let edge = dependencies::task_id.eq(tasks::id).and(dependencies::owner_id.eq(tasks::owner_id));
    let rows: Vec<(StateRow, ResultRow, SpecRow, SignedRow)> = on!(c, |c| tasks::table
        .inner_join(task_specs::table.on(spec))
        .left_join(task_signatures::table.on(signatures::of_task()))
        .filter(part)
        .order(tasks::position)
        .select((StateRow::as_select(), ResultRow::as_select(), SpecRow::as_select(), signatures::signed()))
        .load(c))?;
    let edges: Vec<(TaskId, TaskId)> = on!(c, |c| tasks::table
        .inner_join(dependencies::table.on(edge))
        .filter(part)
        .order((dependencies::task_id, dependencies::place))
        .select((dependencies::task_id, dependencies::depends_on))
        .load(c))?;
    let mut depends_on: HashMap<TaskId, Vec<TaskId>> = HashMap::new();
    for (task, target) in edges {
        depends_on.entry(task).or_default().push(target);
    }
    let handed_back: Vec<TaskId> =
        rows.iter().filter(|(state, ..)| state.refusals > 0).map(|(state, ..)| state.id).collect();
    let mut refusals = refusals::standing(c, view.owner, &handed_back)?;
    // Attempts leave these.
    let tried: Vec<TaskId> = rows.iter().filter(|(state, ..)| state.attempt > 0).map(|(state, ..)| state.id).collect();
    let mut permissions = permissions::of_tasks(c, view.owner, &tried)?;
    let mut changes = changes_of(c, view, &tried)?;
    let sealed: Vec<TaskId> =
        rows.iter().filter(|(_, _, spec, _)| spec.is_sealed()).map(|(state, ..)| state.id).collect();
    let mut sessions = task_sessions::of_tasks(c, view.owner, &sealed)?;
    let waiting = leases::waiting(c, &running(rows.iter().map(|(state, ..)| state)))?;
    let operation = c.operation();
    let task = |(state, result, spec, signed): (StateRow, ResultRow, SpecRow, SignedRow)| {
        let related = Related {
            signed: signatures::read(signed, operation)?,
            depends_on: depends_on.remove(&state.id).unwrap_or_default(),
            refusals: refusals.remove(&state.id).unwrap_or_default(),
            permission: permissions.remove(&state.id),
            waits: waiting.get(&state.id).copied(),
            changes: changes.remove(&state.id),
            session: sessions.remove(&state.id),
        };
        whole_task(view, state, result, spec, related).map_err(|error| StoreError::bad_row(operation, error))
    };
    rows.into_iter().map(task).collect()
}

/// The ids of the tasks that a runner has.
fn running<'a>(rows: impl Iterator<Item = &'a StateRow>) -> Vec<TaskId> {
    rows.filter(|row| row.status == TaskStatus::Running).map(|row| row.id).collect()
}

/// What tasks changed. An order to an offline machine waits for it.
fn changes_of(c: &mut Conn, view: &RunView, of: &[TaskId]) -> Result<HashMap<TaskId, TaskChanges>, StoreError> {
    let mut found = task_changes::of_tasks(c, view.owner, of)?;
    if found.values().any(|found| found.order.is_some()) {
        let (now, runners) = (c.now()?, runners::of_account(c, view.owner)?);
        for found in found.values_mut() {
            let is_active = runners.iter().any(|runner| runner.machine == found.machine && runner.is_active);
            let waits = found.order.is_some_and(|order| waits_for_machine(order, is_active, now));
            found.changes.waiting_for = waits.then_some(ChangesWaitFor::Machine);
        }
    }
    Ok(found.into_iter().map(|(task, found)| (task, found.changes)).collect())
}

/// Reads one task of an account's run.
pub(crate) fn task(c: &mut Conn, owner: UserId, run: RunId, id: TaskId) -> Result<Option<Task>, StoreError> {
    let position: Option<i32> = on!(c, |c| tasks::table
        .find(id.db())
        .filter(tasks::run_id.eq(run.db()).and(tasks::owner_id.eq(owner.db())))
        .select(tasks::position)
        .first(c)
        .optional())?;
    let (Some(at), Some(view)) = (position, self::run(c, owner, run)?) else { return Ok(None) };
    Ok(tasks(c, &view, at, at + 1)?.into_iter().next())
}

/// What other tables hold about a task.
struct Related {
    signed: Option<Signed>,
    depends_on: Vec<TaskId>,
    refusals: Vec<Refusal>,
    permission: Option<AttemptPermission>,
    waits: Option<LeaseWaitsFor>,
    changes: Option<TaskChanges>,
    session: Option<OfTask>,
}

/// # Errors
/// A list in the row is not JSON.
fn whole_task(
    view: &RunView,
    state: StateRow,
    result: ResultRow,
    spec: SpecRow,
    Related { signed, depends_on, refusals, permission, waits, changes, session }: Related,
) -> Result<Task, serde_json::Error> {
    let provider = state.provider;
    let count = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
    let usage = Usage {
        input_tokens: count(result.input_tokens),
        output_tokens: count(result.output_tokens),
        cost_usd: result.cost_usd,
    };
    let (permission, denials) = permission.map_or((None, None), |of| (of.permission, of.denials));
    let allowed_tools = spec.allowed_tools.as_deref().map(serde_json::from_str).transpose()?.unwrap_or_default();
    let state = state.changed_task(spec.reference, view, &refusals, waits);
    Ok(Task {
        id: state.id,
        reference: state.reference,
        task_key: spec.task_key,
        title: spec.title,
        prompt: Some(spec.prompt).filter(|prompt| !prompt.is_empty()),
        signed,
        session: session.map(|session| session.kind),
        session_id: session.and_then(|session| session.session),
        provider,
        model: spec.model,
        working_directory: spec.working_directory,
        machine_id: state.machine_id,
        depends_on,
        status: state.status,
        attempt: state.attempt,
        waiting_for: state.waiting_for,
        waiting_reason: state.waiting_reason,
        permission: permission.or(spec.permission.map(Permission::from)),
        allowed_tools,
        isolation: spec.isolation.map(Isolation::from).unwrap_or_default(),
        base: spec.base,
        changes,
        permission_denials: denials,
        refusals,
        error: state.error.map(|error| TaskError { message: result.error_message.unwrap_or_default(), ..error }),
        output_summary: result.output_summary,
        exit_code: result.exit_code,
        usage: (usage != Usage::default()).then_some(usage),
        max_cost_usd: spec.max_cost_usd,
        provider_session_id: result.provider_session_id,
        stale: spec.stale,
        created_at: result.created_at,
        started_at: result.started_at,
        finished_at: result.finished_at,
    })
}
