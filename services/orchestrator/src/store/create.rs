//! New runs.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use serde::Serialize;

use super::sql::{Sql, Value, sql, two_sqls, values};
use super::whole::{Opened, opened};
use super::{Store, changed, work};
use crate::domain::RunDraft;
use crate::error::Error;

/// A run that was made now or by an earlier request with the same key.
pub(crate) struct Submitted {
    pub(crate) run: Opened,
    pub(crate) is_new: bool,
}

/// A task on its way into the database: tasks travel as one JSON text, so that a run of 10,000 takes as many statements
/// as one of 1. Ids are hexadecimal without hyphens, which both databases read.
#[derive(Serialize)]
struct NewTask<'a> {
    id: String,
    position: usize,
    provider: &'static str,
    machine_id: Option<&'a str>,
    templated: bool,
    dependents: i32,
    timeout_ms: u64,
    max_attempts: i32,
    backoff_ms: u64,
    backoff_factor: f64,
    open_deps: usize,
    task_key: Option<&'a str>,
    title: Option<&'a str>,
    prompt: &'a str,
    model: Option<&'a str>,
    working_directory: Option<&'a str>,
}

#[derive(Serialize)]
struct NewEdge {
    task_id: String,
    place: usize,
    depends_on: String,
}

impl Store {
    /// The run that this very wish made before. Machines that it named may be gone by now.
    pub(crate) async fn made_before(&self, wish: IdempotencyRequest) -> Result<Option<RunId>, Error> {
        self.db
            .read("look for an earlier request", move |c| {
                let query: Sql<Text> = sql(
                    "SELECT resource FROM idempotency_keys WHERE scope = {} AND route = {} AND key = {} AND body_hash = {}",
                    values![wish.scope.as_str(), wish.route, wish.key.as_str(), wish.body_hash.to_vec()],
                );
                let resource: Option<String> = on!(c, |c| query.get_result(c).optional())?;
                Ok(resource.and_then(|id| id.parse().ok()))
            })
            .await
    }

    /// Makes a run, unless its idempotency key made one before.
    pub(crate) async fn create(
        &self,
        owner: UserId,
        draft: RunDraft,
        traceparent: Option<String>,
        wish: Option<IdempotencyRequest>,
    ) -> Result<Submitted, Error> {
        let limit = self.terms.max_unfinished;
        let rows = Rows::of(&draft);
        self.db
            .write("create a run", move |tx| {
                let id = RunId::generate();
                if let Some(wish) = &wish {
                    match idempotency::claim(tx, wish, &id.to_string())? {
                        IdempotencyOutcome::New => {}
                        IdempotencyOutcome::Mismatch => return Err(Error::OtherBody),
                        IdempotencyOutcome::Replay { resource } => {
                            let id = resource.parse().map_err(|error| StoreError::bad_row(tx.operation(), error))?;
                            return Ok(Submitted { run: opened(tx, owner, id)?, is_new: false });
                        }
                    }
                }
                let more = i64::try_from(draft.tasks.len()).unwrap_or(i64::MAX);
                // A large plan takes a while to write, on a slow machine longer than a caller waits for small things.
                tx.extend_deadline(Duration::from_millis(more.unsigned_abs()));
                check_unfinished(tx, owner, more, limit)?;
                insert(tx, id, owner, &draft, traceparent.as_deref(), &rows)?;
                tx.notify(changed(id));
                tx.notify(work(owner));
                Ok(Submitted { run: opened(tx, owner, id)?, is_new: true })
            })
            .await
    }
}

/// A plan of so many tasks is small.
const SMALL: i64 = 100;

/// Refuses `more` tasks when the account has too many that are not finished. Near the limit there is one decision at a
/// time for each account, until its commit; far from it, as many small plans as there could be connections still fit.
pub(super) fn check_unfinished(tx: &mut Conn, owner: UserId, more: i64, limit: i64) -> Result<(), Error> {
    if more <= SMALL && unfinished(tx, owner)?.saturating_add(more) <= limit / 2 {
        return Ok(());
    }
    if tx.is_postgres() {
        let turn: Sql<()> =
            sql("SELECT pg_advisory_xact_lock(hashtextextended({}, 0))", values![format!("unfinished of {owner}")]);
        on!(tx, Pg | c | turn.execute(c), Sqlite | _c | Ok(0))?;
    }
    let open = unfinished(tx, owner)?;
    if open.saturating_add(more) > limit { Err(Error::TooManyTasks { open, limit }) } else { Ok(()) }
}

fn unfinished(tx: &mut Conn, owner: UserId) -> Result<i64, StoreError> {
    let query: Sql<Nullable<BigInt>> =
        sql("SELECT SUM(queued + running) FROM runs WHERE owner_id = {} AND finished_at IS NULL", values![owner]);
    let open: Option<i64> = on!(tx, |c| query.get_result(c))?;
    Ok(open.unwrap_or(0))
}

/// A plan as JSON, made once and outside of the transaction.
struct Rows {
    tasks: String,
    edges: String,
    has_edges: bool,
}

impl Rows {
    fn of(draft: &RunDraft) -> Self {
        let dependents = draft.graph.dependents();
        let tasks: Vec<NewTask<'_>> = draft
            .tasks
            .iter()
            .enumerate()
            .map(|(position, task)| NewTask {
                id: hex(task.id),
                position,
                provider: task.provider.as_str(),
                machine_id: task.machine.as_ref().map(|machine| machine.as_str()),
                templated: task.templated,
                dependents: dependents.get(position).copied().unwrap_or(0),
                timeout_ms: millis(task.timeout),
                max_attempts: task.retry.max_attempts,
                backoff_ms: millis(task.retry.backoff),
                backoff_factor: task.retry.factor,
                open_deps: draft.graph.dependencies(position).len(),
                task_key: task.key.as_deref(),
                title: task.title.as_deref(),
                prompt: &task.prompt,
                model: task.model.as_deref(),
                working_directory: task.working_directory.as_deref(),
            })
            .collect();
        let mut edges = Vec::new();
        for (position, task) in draft.tasks.iter().enumerate() {
            for (place, target) in draft.graph.dependencies(position).iter().enumerate() {
                if let Some(target) = draft.tasks.get(*target) {
                    edges.push(NewEdge { task_id: hex(task.id), place, depends_on: hex(target.id) });
                }
            }
        }
        Self { has_edges: !edges.is_empty(), tasks: json(&tasks), edges: json(&edges) }
    }
}

/// Texts and numbers always have a JSON form.
fn json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).unwrap_or_default()
}

fn hex(id: TaskId) -> String {
    id.uuid().simple().to_string()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn insert(
    tx: &mut Conn,
    id: RunId,
    owner: UserId,
    draft: &RunDraft,
    traceparent: Option<&str>,
    rows: &Rows,
) -> Result<(), StoreError> {
    let now = tx.now()?;
    let total = i32::try_from(draft.tasks.len()).unwrap_or(i32::MAX);
    let ready = (0..draft.tasks.len()).filter(|at| draft.graph.dependencies(*at).is_empty()).count();
    let run: Sql<()> = sql(
        "INSERT INTO runs (id, owner_id, title, status, cancel_reason, max_concurrency, spread, pinned, machine_id, \
         traceparent, total, queued, running, completed, failed, cancelled, ready, version, served_at, created_at, \
         updated_at, started_at, finished_at) VALUES ({}, {}, {}, 'queued', NULL, {}, {}, {}, NULL, {}, {}, {}, \
         0, 0, 0, 0, {}, 1, {}, {}, {}, NULL, NULL)",
        values![
            id,
            owner,
            draft.title.as_deref(),
            draft.max_concurrency,
            draft.spread,
            draft.tasks.iter().any(|task| task.machine.is_some()),
            traceparent,
            total,
            total,
            i32::try_from(ready).unwrap_or(i32::MAX),
            now,
            now,
            now
        ],
    );
    on!(tx, |c| run.execute(c))?;
    let tasks: Sql<()> = two_sqls(
        "INSERT INTO tasks (id, run_id, owner_id, position, provider, machine_id, templated, dependents, timeout_ms, \
         max_attempts, backoff_ms, backoff_factor, status, attempt, open_deps, failures, losses, version, created_at) \
         SELECT id, {}, {}, position, provider, machine_id, templated, dependents, timeout_ms, max_attempts, \
         backoff_ms, backoff_factor, 'queued', 0, open_deps, 0, 0, 1, {} FROM json_to_recordset({}::json) AS x \
         (id uuid, position integer, provider text, machine_id text, templated boolean, dependents integer, \
         timeout_ms bigint, max_attempts integer, backoff_ms bigint, backoff_factor double precision, \
         open_deps integer)",
        "INSERT INTO tasks (id, run_id, owner_id, position, provider, machine_id, templated, dependents, timeout_ms, \
         max_attempts, backoff_ms, backoff_factor, status, attempt, open_deps, failures, losses, version, created_at) \
         SELECT unhex(value ->> 'id'), {}, {}, value ->> 'position', value ->> 'provider', value ->> 'machine_id', \
         value ->> 'templated', value ->> 'dependents', value ->> 'timeout_ms', value ->> 'max_attempts', \
         value ->> 'backoff_ms', value ->> 'backoff_factor', 'queued', 0, value ->> 'open_deps', 0, 0, 1, {} \
         FROM json_each({})",
        values![id, owner, now, rows.tasks.as_str()],
    );
    on!(tx, |c| tasks.execute(c))?;
    let specs: Sql<()> = two_sqls(
        "INSERT INTO task_specs (task_id, task_key, title, prompt, model, working_directory) \
         SELECT id, task_key, title, prompt, model, working_directory FROM json_to_recordset({}::json) AS x \
         (id uuid, task_key text, title text, prompt text, model text, working_directory text)",
        "INSERT INTO task_specs (task_id, task_key, title, prompt, model, working_directory) \
         SELECT unhex(value ->> 'id'), value ->> 'task_key', value ->> 'title', value ->> 'prompt', \
         value ->> 'model', value ->> 'working_directory' FROM json_each({})",
        vec![Value::from(rows.tasks.as_str())],
    );
    on!(tx, |c| specs.execute(c))?;
    if rows.has_edges {
        let edges: Sql<()> = two_sqls(
            "INSERT INTO dependencies (task_id, place, depends_on) SELECT task_id, place, depends_on \
             FROM json_to_recordset({}::json) AS x (task_id uuid, place integer, depends_on uuid)",
            "INSERT INTO dependencies (task_id, place, depends_on) SELECT unhex(value ->> 'task_id'), \
             value ->> 'place', unhex(value ->> 'depends_on') FROM json_each({})",
            vec![Value::from(rows.edges.as_str())],
        );
        on!(tx, |c| edges.execute(c))?;
    }
    Ok(())
}
