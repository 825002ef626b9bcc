//! Inserts the rows of a new run.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{Binary, Nullable};
use ensemble_store_kit::idempotency::{IdempotencyRequest, idempotency_keys};
use ensemble_store_kit::types::{DbId, DbRef, DbTime, IntoDb, RefText, Uid};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{MachineId, RunId, UserId};
use ensemble_types::refs::Ref;
use ensemble_types::runs::{Isolation, Permission, RunStatus, TaskStatus};
use ensemble_types::time::Timestamp;

use super::schema::{dependencies, runs, task_specs, tasks};
use super::{signatures, task_sessions};
use crate::domain::{RunDraft, TaskDraft};

/// Rows in one statement. SQLite allows 32,766 values in a statement, and a task has 19.
const CHUNK: usize = 1_000;

#[derive(Insertable)]
#[diesel(table_name = runs, treat_none_as_default_value = false)]
struct RunRow<'a> {
    id: DbId,
    reference: DbRef,
    owner_id: DbId,
    title: Option<&'a str>,
    status: &'static str,
    max_concurrency: i32,
    spread: bool,
    pinned: bool,
    wanted_machine_id: Option<&'a str>,
    traceparent: Option<&'a str>,
    total: i32,
    queued: i32,
    running: i32,
    completed: i32,
    failed: i32,
    cancelled: i32,
    ready: i32,
    version: i64,
    served_at: DbTime,
    stored_bytes: i64,
    request_hash: Option<&'a [u8]>,
    created_at: DbTime,
    updated_at: DbTime,
}

#[derive(Insertable)]
#[diesel(table_name = tasks, treat_none_as_default_value = false)]
struct TaskRow<'a> {
    id: DbId,
    run_id: DbId,
    owner_id: DbId,
    position: i32,
    provider: &'a str,
    machine_id: Option<&'a str>,
    templated: bool,
    dependents: i32,
    timeout_ms: i64,
    max_attempts: i32,
    backoff_ms: i64,
    backoff_factor: f64,
    status: &'static str,
    attempt: i32,
    open_deps: i32,
    failures: i32,
    losses: i32,
    version: i64,
    created_at: DbTime,
}

#[derive(Insertable)]
#[diesel(table_name = task_specs, treat_none_as_default_value = false)]
struct SpecRow<'a> {
    task_id: DbId,
    owner_id: DbId,
    reference: DbRef,
    task_key: Option<&'a str>,
    title: Option<&'a str>,
    prompt: &'a str,
    model: Option<&'a str>,
    working_directory: Option<&'a str>,
    permission: Option<&'static str>,
    allowed_tools: Option<String>,
    fail_on_denial: bool,
    isolation: Option<&'static str>,
    base: Option<&'a str>,
    base_task: Option<DbId>,
    stale: bool,
    max_cost_usd: Option<f64>,
}

#[derive(Insertable)]
#[diesel(table_name = dependencies)]
struct EdgeRow {
    task_id: DbId,
    owner_id: DbId,
    place: i32,
    depends_on: DbId,
}

/// The id of what an earlier request with this key and body created.
pub(crate) fn submitted_before(c: &mut Conn, request: &IdempotencyRequest) -> Result<Option<String>, StoreError> {
    on!(c, |c| idempotency_keys::table
        .find((&request.scope, request.route, &request.key))
        .filter(idempotency_keys::body_hash.eq(request.body_hash.as_slice()))
        .select(idempotency_keys::resource)
        .first(c)
        .optional())
}

/// What an id that a client has chosen says about its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    New,
    /// The same request has made the run with this id.
    Made,
    /// Another request has: of this account or of another one. Or its run was deleted.
    Taken,
}

#[derive(QueryableByName)]
struct KnownRow {
    #[diesel(sql_type = Uid)]
    owner_id: UserId,
    #[diesel(sql_type = Nullable<Binary>)]
    request_hash: Option<Vec<u8>>,
}

/// Runs with an id, and runs that were deleted with it, or with its ref.
const KNOWN: &str = "SELECT owner_id, request_hash FROM runs WHERE id = $1 \
                     UNION ALL SELECT owner_id, NULL FROM deleted_runs WHERE run_id = $1 \
                     UNION ALL SELECT owner_id, NULL FROM deleted_runs WHERE owner_id = $2 AND ref = $3";

/// Looks for what has the id that a client has chosen.
pub(crate) fn chosen(c: &mut Conn, id: RunId, owner: UserId, request_hash: &[u8; 32]) -> Result<Chosen, StoreError> {
    let known: Vec<KnownRow> = on!(c, |c| cached(
        sql_query(KNOWN).bind::<Uid, _>(id.db()).bind::<Uid, _>(owner.db()).bind::<RefText, _>(Ref::of(&id).db())
    )
    .load(c))?;
    Ok(match known.as_slice() {
        [] => Chosen::New,
        [row] if row.owner_id == owner && row.request_hash.as_deref() == Some(request_hash.as_slice()) => Chosen::Made,
        _ => Chosen::Taken,
    })
}

/// Inserts a run with its tasks and their dependencies. Returns when it was created.
pub(crate) fn insert(
    tx: &mut Conn,
    (id, owner): (RunId, UserId),
    draft: &RunDraft,
    traceparent: Option<&str>,
    request_hash: Option<&[u8; 32]>,
) -> Result<Timestamp, StoreError> {
    let now = tx.now()?;
    insert_run(tx, (id, owner), draft, (traceparent, request_hash), now)?;
    let dependents = draft.graph.dependents();
    let tasks: Vec<TaskRow<'_>> = (0..)
        .zip(&draft.tasks)
        .zip(dependents)
        .enumerate()
        .map(|(at, ((position, task), dependents))| {
            task_row((id, owner), task, position, (draft.graph.dependencies(at).len(), dependents), now)
        })
        .collect();
    for rows in tasks.chunks(CHUNK) {
        on!(tx, |c| diesel::insert_into(tasks::table).values(rows).execute(c))?;
    }
    let specs: Vec<SpecRow<'_>> = draft.tasks.iter().map(|task| spec_row(owner, draft, task)).collect();
    for rows in specs.chunks(CHUNK) {
        on!(tx, |c| diesel::insert_into(task_specs::table).values(rows).execute(c))?;
    }
    task_sessions::insert(tx, owner, &draft.tasks)?;
    signatures::insert(tx, owner, &draft.tasks)?;
    for rows in edge_rows(owner, draft).chunks(CHUNK) {
        on!(tx, |c| diesel::insert_into(dependencies::table).values(rows).execute(c))?;
    }
    Ok(now)
}

fn insert_run(
    tx: &mut Conn,
    (id, owner): (RunId, UserId),
    draft: &RunDraft,
    (traceparent, request_hash): (Option<&str>, Option<&[u8; 32]>),
    now: Timestamp,
) -> Result<(), StoreError> {
    let total = int(draft.tasks.len());
    let ready = (0..draft.tasks.len()).filter(|at| draft.graph.dependencies(*at).is_empty()).count();
    let row = RunRow {
        id: id.db(),
        reference: Ref::of(&id).db(),
        owner_id: owner.db(),
        title: draft.title.as_deref(),
        status: RunStatus::Queued.as_str(),
        max_concurrency: i32::try_from(draft.max_concurrency).unwrap_or(i32::MAX),
        spread: draft.spread,
        pinned: draft.tasks.iter().any(|task| task.machine.is_some()),
        wanted_machine_id: draft.machine.as_ref().map(MachineId::as_str),
        traceparent,
        total,
        queued: total,
        running: 0,
        completed: 0,
        failed: 0,
        cancelled: 0,
        ready: int(ready),
        version: 1,
        served_at: now.db(),
        stored_bytes: draft.stored_bytes(),
        request_hash: request_hash.map(<[u8; 32]>::as_slice),
        created_at: now.db(),
        updated_at: now.db(),
    };
    on!(tx, |c| diesel::insert_into(runs::table).values(&row).execute(c))?;
    Ok(())
}

fn task_row<'a>(
    (run, owner): (RunId, UserId),
    task: &'a TaskDraft,
    position: i32,
    (dependencies, dependents): (usize, i32),
    now: Timestamp,
) -> TaskRow<'a> {
    TaskRow {
        id: task.id.db(),
        run_id: run.db(),
        owner_id: owner.db(),
        position,
        provider: task.provider.as_str(),
        machine_id: task.machine.as_ref().map(|machine| machine.as_str()),
        templated: task.templated,
        dependents,
        timeout_ms: millis(task.timeout),
        max_attempts: task.retry.max_attempts,
        backoff_ms: millis(task.retry.backoff),
        backoff_factor: task.retry.factor,
        status: TaskStatus::Queued.as_str(),
        attempt: 0,
        open_deps: int(dependencies),
        failures: 0,
        losses: 0,
        version: 1,
        created_at: now.db(),
    }
}

fn spec_row<'a>(owner: UserId, draft: &RunDraft, task: &'a TaskDraft) -> SpecRow<'a> {
    let base_task = task.base_task.and_then(|at| draft.tasks.get(at));
    SpecRow {
        task_id: task.id.db(),
        owner_id: owner.db(),
        reference: Ref::of(&task.id).db(),
        task_key: task.key.as_deref(),
        title: task.title.as_deref(),
        prompt: &task.prompt,
        model: task.model.as_deref(),
        working_directory: task.working_directory.as_deref(),
        permission: task.permission.map(Permission::as_str),
        allowed_tools: allowed_tools(&task.allowed_tools),
        fail_on_denial: task.fail_on_denial,
        isolation: (task.isolation != Isolation::None).then_some(task.isolation.as_str()),
        base: task.base.as_deref(),
        base_task: base_task.map(|task| task.id.db()),
        stale: false,
        max_cost_usd: task.max_cost_usd,
    }
}

fn allowed_tools(tools: &[String]) -> Option<String> {
    (!tools.is_empty()).then(|| serde_json::Value::from(tools).to_string())
}

fn edge_rows(owner: UserId, draft: &RunDraft) -> Vec<EdgeRow> {
    let mut rows = Vec::new();
    for (position, task) in draft.tasks.iter().enumerate() {
        for (place, target) in (0..).zip(draft.graph.dependencies(position)) {
            if let Some(target) = draft.tasks.get(*target) {
                rows.push(EdgeRow { task_id: task.id.db(), owner_id: owner.db(), place, depends_on: target.id.db() });
            }
        }
    }
    rows
}

fn int(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
