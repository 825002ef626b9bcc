//! Runs as their owners see them.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, cursor, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::runs::{ChangedTask, Run, RunStatus, RunSummary, Task, TaskError, TaskStatus, Usage};
use ensemble_types::time::Timestamp;

use super::Store;
use super::held::{provider, run_status, task_status};
use super::sql::{Sql, Value, sql, values};
use crate::domain::{Runner, Waits, waiting_for};
use crate::error::Error;

/// Which runs to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    Active,
    Terminal,
    Only(RunStatus),
}

/// A place in the list of runs, newest first: behind the run that was made then and has this id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct After {
    created_at: Timestamp,
    id: RunId,
}

/// A part of the list.
pub(crate) struct Listed {
    pub(crate) runs: Vec<Run>,
    pub(crate) next: Option<After>,
}

/// A run, and those of its tasks that changed after some version.
pub(crate) struct Seen {
    pub(crate) run: Run,
    pub(crate) changed: Vec<ChangedTask>,
    pub(crate) more: bool,
}

type RunTypes = (
    Uid,
    Nullable<Text>,
    Text,
    Nullable<Text>,
    Integer,
    Bool,
    (Integer, Integer, Integer, Integer, Integer, Integer),
    BigInt,
    (Moment, Moment, Nullable<Moment>, Nullable<Moment>),
    Nullable<Text>,
);

#[derive(Queryable)]
struct RunRow {
    id: RunId,
    title: Option<String>,
    status: String,
    cancel_reason: Option<String>,
    max_concurrency: i32,
    spread: bool,
    counts: (i32, i32, i32, i32, i32, i32),
    version: i64,
    times: (Timestamp, Timestamp, Option<Timestamp>, Option<Timestamp>),
    machine: Option<String>,
}

macro_rules! columns {
    () => {
        "SELECT id, title, status, cancel_reason, max_concurrency, spread, total, queued, running, completed, failed, \
         cancelled, version, created_at, updated_at, started_at, finished_at, machine_id FROM runs "
    };
}

impl RunRow {
    fn run(self, operation: &'static str) -> Result<Run, StoreError> {
        let count = |count: i32| u32::try_from(count).unwrap_or(0);
        let (total, queued, running, completed, failed, cancelled) = self.counts;
        let (created_at, updated_at, started_at, finished_at) = self.times;
        Ok(Run {
            id: self.id,
            title: self.title,
            status: run_status(&self.status, operation)?,
            cancel_reason: self.cancel_reason,
            max_concurrency: count(self.max_concurrency),
            spread: self.spread,
            summary: RunSummary {
                total: count(total),
                queued: count(queued),
                running: count(running),
                completed: count(completed),
                failed: count(failed),
                cancelled: count(cancelled),
            },
            version: self.version,
            created_at,
            updated_at,
            started_at,
            finished_at,
            tasks: None,
        })
    }
}

impl After {
    const LIST: &str = "runs";

    /// # Errors
    /// It is not a cursor of this list.
    pub(crate) fn decode(text: &str) -> Result<Self, Error> {
        let (micros, id): (i64, RunId) = cursor::decode(Self::LIST, text)?;
        Ok(Self { created_at: Timestamp::from_micros(micros), id })
    }

    pub(crate) fn encode(&self) -> String {
        cursor::encode(Self::LIST, &(self.created_at.micros(), self.id))
    }
}

impl Store {
    /// Runs of an account behind a place in the list, without their tasks.
    pub(crate) async fn list(
        &self,
        owner: UserId,
        filter: Filter,
        after: Option<After>,
        limit: u32,
    ) -> Result<Listed, Error> {
        self.db
            .read("list runs", move |c| {
                macro_rules! query {
                    ($filter:literal) => {
                        concat!(
                            columns!(),
                            "WHERE owner_id = {} AND ",
                            $filter,
                            " AND (created_at < {} OR (created_at = {} AND id < {})) \
                             ORDER BY created_at DESC, id DESC LIMIT {}"
                        )
                    };
                }
                let text = match filter {
                    Filter::All => query!("TRUE"),
                    Filter::Active => query!("finished_at IS NULL"),
                    Filter::Terminal => query!("finished_at IS NOT NULL"),
                    Filter::Only(_) => query!("status = {}"),
                };
                // The beginning: behind a run that is made at the end of the year 9999.
                let at = after.map_or(Timestamp::from_unix_seconds(253_402_300_799), |after| after.created_at);
                let id = after.map_or(RunId::from_uuid(uuid::Uuid::nil()), |after| after.id);
                let mut given = vec![Value::from(owner)];
                if let Filter::Only(status) = filter {
                    given.push(status.as_str().into());
                }
                given.extend(values![at, at, id, i64::from(limit) + 1]);
                let rows: Vec<RunRow> = on!(c, |c| sql::<RunTypes>(text, given).load(c))?;
                let operation = c.operation();
                let mut runs = rows.into_iter().map(|row| row.run(operation)).collect::<Result<Vec<_>, _>>()?;
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                let more = runs.len() > limit;
                runs.truncate(limit);
                let next = runs.last().filter(|_| more).map(|run| After { created_at: run.created_at, id: run.id });
                Ok(Listed { runs, next })
            })
            .await
    }

    /// A run with all its tasks.
    pub(crate) async fn run(&self, owner: UserId, id: RunId) -> Result<Run, Error> {
        self.db
            .read("read a run", move |c| {
                let row = find(c, owner, id)?.ok_or(Error::NotFound)?;
                let (machine, spread) = (row.machine.clone(), row.spread);
                let mut run = row.run(c.operation())?;
                // A large run takes a while to read on a slow machine.
                c.extend_patience(std::time::Duration::from_millis(run.summary.total.into()));
                let runners = runners(c, owner, run.summary.queued > 0)?;
                run.tasks = Some(tasks(c, &run, if spread { None } else { machine.as_deref() }, &runners)?);
                Ok(run)
            })
            .await
    }

    /// A run without its tasks.
    pub(crate) async fn bare_run(&self, owner: UserId, id: RunId) -> Result<Run, Error> {
        self.db
            .read("read a run's state", move |c| {
                let row = find(c, owner, id)?.ok_or(Error::NotFound)?;
                Ok(row.run(c.operation())?)
            })
            .await
    }

    /// The tasks of a run that changed after a version, at most `limit`.
    pub(crate) async fn seen(&self, owner: UserId, id: RunId, since: i64, limit: usize) -> Result<Seen, Error> {
        self.db
            .read("read what changed in a run", move |c| {
                let row = find(c, owner, id)?.ok_or(Error::NotFound)?;
                let machine = row.machine.clone().filter(|_| !row.spread);
                let run = row.run(c.operation())?;
                if run.version <= since {
                    return Ok(Seen { run, changed: Vec::new(), more: false });
                }
                let runners = runners(c, owner, run.summary.queued > 0)?;
                let query: Sql<ChangedTypes> = sql(
                    "SELECT id, status, attempt, open_deps, not_before IS NOT NULL, provider, machine_id, error_code, \
                     error_message FROM tasks WHERE run_id = {} AND version > {} ORDER BY version, position LIMIT {}",
                    values![id, since, i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)],
                );
                let rows: Vec<ChangedRow> = on!(c, |c| query.load(c))?;
                let more = rows.len() > limit;
                let operation = c.operation();
                let full = run.summary.running >= run.max_concurrency;
                let changed =
                    rows.into_iter().take(limit).map(|row| row.changed(operation, machine.as_deref(), full, &runners));
                Ok(Seen { changed: changed.collect::<Result<_, _>>()?, run, more })
            })
            .await
    }
}

fn find(c: &mut Conn, owner: UserId, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let query: Sql<RunTypes> = sql(concat!(columns!(), "WHERE id = {} AND owner_id = {}"), values![id, owner]);
    on!(c, |c| query.get_result(c).optional())
}

/// Who asked for leases lately.
fn runners(c: &mut Conn, owner: UserId, wanted: bool) -> Result<Vec<Runner>, StoreError> {
    if !wanted {
        return Ok(Vec::new());
    }
    let query: Sql<(Text, Text)> = sql(
        "SELECT machine_id, providers FROM runners WHERE owner_id = {} AND seen_until > {}",
        values![owner, Value::Now],
    );
    let rows: Vec<(String, String)> = on!(c, |c| query.load(c))?;
    let operation = c.operation();
    rows.into_iter()
        .map(|(machine, providers)| {
            let names = providers.split(',').filter(|name| !name.is_empty());
            let providers = names.map(|name| provider(name, operation)).collect::<Result<_, _>>()?;
            Ok(Runner { machine, providers })
        })
        .collect()
}

type ChangedTypes = (Uid, Text, Integer, Integer, Bool, Text, Nullable<Text>, Nullable<Text>, Nullable<Text>);

#[derive(Queryable)]
struct ChangedRow {
    id: TaskId,
    status: String,
    attempt: i32,
    open_deps: i32,
    paused: bool,
    provider: String,
    pin: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
}

impl ChangedRow {
    fn changed(
        self,
        operation: &'static str,
        run_machine: Option<&str>,
        run_is_full: bool,
        runners: &[Runner],
    ) -> Result<ChangedTask, StoreError> {
        let status = task_status(&self.status, operation)?;
        let waits = Waits {
            status,
            open_deps: self.open_deps,
            paused: self.paused,
            provider: provider(&self.provider, operation)?,
            machine: self.pin.as_deref().or(run_machine),
            run_is_full,
        };
        Ok(ChangedTask {
            id: self.id,
            status,
            attempt: u32::try_from(self.attempt).unwrap_or(0),
            waiting_for: waiting_for(waits, runners),
            error: error(status, self.error_code, self.error_message),
        })
    }
}

/// The error of a task that has one to show. One that is tried again keeps that of its last attempt.
fn error(_status: TaskStatus, code: Option<String>, message: Option<String>) -> Option<TaskError> {
    code.map(|code| TaskError { code, message: message.unwrap_or_default() })
}

type TaskTypes = (
    (Uid, Text, Integer, Integer, Bool, Text, Nullable<Text>, Nullable<Text>, Nullable<Text>),
    (Nullable<Text>, Nullable<Text>, Nullable<Integer>, Nullable<Text>),
    (Nullable<BigInt>, Nullable<BigInt>, Nullable<Double>),
    (Moment, Nullable<Moment>, Nullable<Moment>),
    (Nullable<Text>, Nullable<Text>, Text, Nullable<Text>, Nullable<Text>),
);

#[derive(Queryable)]
struct TaskRow {
    state: ChangedRow,
    /// Machine of the last attempt, output summary, exit code, provider's session.
    results: (Option<String>, Option<String>, Option<i32>, Option<String>),
    usage: (Option<i64>, Option<i64>, Option<f64>),
    times: (Timestamp, Option<Timestamp>, Option<Timestamp>),
    /// Key, title, prompt, model, working directory.
    spec: (Option<String>, Option<String>, String, Option<String>, Option<String>),
}

fn tasks(c: &mut Conn, run: &Run, machine: Option<&str>, runners: &[Runner]) -> Result<Vec<Task>, StoreError> {
    let query: Sql<TaskTypes> = sql(
        "SELECT t.id, t.status, t.attempt, t.open_deps, t.not_before IS NOT NULL, t.provider, t.machine_id, \
         t.error_code, t.error_message, t.ran_on, t.output_summary, t.exit_code, t.provider_session_id, \
         t.input_tokens, t.output_tokens, t.cost_usd, t.created_at, t.started_at, t.finished_at, \
         s.task_key, s.title, s.prompt, s.model, s.working_directory \
         FROM tasks t JOIN task_specs s ON s.task_id = t.id WHERE t.run_id = {} ORDER BY t.position",
        values![run.id],
    );
    let rows: Vec<TaskRow> = on!(c, |c| query.load(c))?;
    let query: Sql<(Uid, Uid)> = sql(
        "SELECT d.task_id, d.depends_on FROM tasks t JOIN dependencies d ON d.task_id = t.id WHERE t.run_id = {} \
         ORDER BY d.task_id, d.place",
        values![run.id],
    );
    let edges: Vec<(TaskId, TaskId)> = on!(c, |c| query.load(c))?;
    let mut depends_on: HashMap<TaskId, Vec<TaskId>> = HashMap::new();
    for (task, target) in edges {
        depends_on.entry(task).or_default().push(target);
    }
    let operation = c.operation();
    let full = run.summary.running >= run.max_concurrency;
    rows.into_iter()
        .map(|row| {
            let pin = row.state.pin.clone();
            let name = provider(&row.state.provider, operation)?;
            let state = row.state.changed(operation, machine, full, runners)?;
            let (ran_on, output_summary, exit_code, provider_session_id) = row.results;
            let (created_at, started_at, finished_at) = row.times;
            let (task_key, title, prompt, model, working_directory) = row.spec;
            let machine_id = ran_on.or(pin).map(|id| id.parse()).transpose();
            Ok(Task {
                id: state.id,
                task_key,
                title,
                prompt,
                provider: name,
                model,
                working_directory,
                machine_id: machine_id.map_err(|error| StoreError::bad_row(operation, error))?,
                depends_on: depends_on.remove(&state.id).unwrap_or_default(),
                status: state.status,
                attempt: state.attempt,
                waiting_for: state.waiting_for,
                error: state.error,
                output_summary,
                exit_code,
                usage: usage(row.usage),
                provider_session_id,
                created_at,
                started_at,
                finished_at,
            })
        })
        .collect()
}

fn usage((input, output, cost_usd): (Option<i64>, Option<i64>, Option<f64>)) -> Option<Usage> {
    let count = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
    let usage = Usage { input_tokens: count(input), output_tokens: count(output), cost_usd };
    (usage != Usage::default()).then_some(usage)
}
