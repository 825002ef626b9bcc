//! Runs with all their tasks, a part at a time: with their prompts and summaries, those of a large run are more than a
//! service should hold at once.

use std::collections::HashMap;
use std::sync::Arc;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::runs::{Run, Task, Usage};
use ensemble_types::time::Timestamp;

use super::Store;
use super::held::provider;
use super::read::{ChangedRow, ChangedTypes, find, runners};
use super::sql::{Sql, sql, values};
use crate::domain::Runner;
use crate::error::Error;

/// Tasks in one part. Positions have no gaps, so this is a range of them.
const PART: u32 = 100;

/// A run, and what has to be known to say what its tasks wait for.
pub(crate) struct Whole {
    /// Without its tasks.
    pub(crate) run: Run,
    /// Where its tasks have to go.
    machine: Option<String>,
    runners: Vec<Runner>,
}

/// A run with the first part of its tasks. Later parts may tell of later changes; the run's version is never ahead of
/// them.
pub(crate) type Opened = (Whole, Vec<Task>);

/// Also for whoever has just changed the run: read in the same transaction, what was committed cannot fail to be told.
pub(super) fn opened(c: &mut Conn, owner: UserId, id: RunId) -> Result<Opened, Error> {
    let row = find(c, owner, id)?.ok_or(Error::NotFound)?;
    let machine = row.machine.clone().filter(|_| !row.spread);
    let run = row.run(c.operation())?;
    let runners = runners(c, owner, run.summary.queued > 0)?;
    let whole = Whole { run, machine, runners };
    let tasks = tasks(c, &whole, 0)?;
    Ok((whole, tasks))
}

impl Store {
    pub(crate) async fn whole(&self, owner: UserId, id: RunId) -> Result<Opened, Error> {
        self.db.read("read a run", move |c| opened(c, owner, id)).await
    }

    /// The next part of a run's tasks, behind so many; empty at the end.
    pub(crate) async fn more_tasks(&self, whole: Arc<Whole>, behind: u32) -> Result<Vec<Task>, StoreError> {
        if behind >= whole.run.summary.total {
            return Ok(Vec::new());
        }
        self.db.read("read more of a run", move |c| tasks(c, &whole, behind)).await
    }
}

type TaskTypes = (
    ChangedTypes,
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

fn tasks(c: &mut Conn, whole: &Whole, from: u32) -> Result<Vec<Task>, StoreError> {
    let (run, until) = (whole.run.id, from.saturating_add(PART));
    let query: Sql<TaskTypes> = sql(
        "SELECT t.id, t.status, t.attempt, t.open_deps, t.not_before IS NOT NULL, t.provider, t.machine_id, \
         t.error_code, t.error_message, t.ran_on, t.output_summary, t.exit_code, t.provider_session_id, \
         t.input_tokens, t.output_tokens, t.cost_usd, t.created_at, t.started_at, t.finished_at, \
         s.task_key, s.title, s.prompt, s.model, s.working_directory \
         FROM tasks t JOIN task_specs s ON s.task_id = t.id \
         WHERE t.run_id = {} AND t.position >= {} AND t.position < {} ORDER BY t.position",
        values![run, from, until],
    );
    let rows: Vec<TaskRow> = on!(c, |c| query.load(c))?;
    let query: Sql<(Uid, Uid)> = sql(
        "SELECT d.task_id, d.depends_on FROM tasks t JOIN dependencies d ON d.task_id = t.id \
         WHERE t.run_id = {} AND t.position >= {} AND t.position < {} ORDER BY d.task_id, d.place",
        values![run, from, until],
    );
    let edges: Vec<(TaskId, TaskId)> = on!(c, |c| query.load(c))?;
    let mut depends_on: HashMap<TaskId, Vec<TaskId>> = HashMap::new();
    for (task, target) in edges {
        depends_on.entry(task).or_default().push(target);
    }
    let operation = c.operation();
    let task = |row: TaskRow| row.task(operation, whole, |id| depends_on.remove(&id).unwrap_or_default());
    rows.into_iter().map(task).collect()
}

impl TaskRow {
    fn task(
        self,
        operation: &'static str,
        whole: &Whole,
        depends_on: impl FnOnce(TaskId) -> Vec<TaskId>,
    ) -> Result<Task, StoreError> {
        let run_is_full = whole.run.summary.running >= whole.run.max_concurrency;
        let pin = self.state.pin.clone();
        let provider = provider(&self.state.provider, operation)?;
        let state = self.state.changed(operation, whole.machine.as_deref(), run_is_full, &whole.runners)?;
        let (ran_on, output_summary, exit_code, provider_session_id) = self.results;
        let (created_at, started_at, finished_at) = self.times;
        let (task_key, title, prompt, model, working_directory) = self.spec;
        let machine_id = ran_on.or(pin).map(|id| id.parse()).transpose();
        Ok(Task {
            id: state.id,
            task_key,
            title,
            prompt,
            provider,
            model,
            working_directory,
            machine_id: machine_id.map_err(|error| StoreError::bad_row(operation, error))?,
            depends_on: depends_on(state.id),
            status: state.status,
            attempt: state.attempt,
            waiting_for: state.waiting_for,
            error: state.error,
            output_summary,
            exit_code,
            usage: usage(self.usage),
            provider_session_id,
            created_at,
            started_at,
            finished_at,
        })
    }
}

fn usage((input, output, cost_usd): (Option<i64>, Option<i64>, Option<f64>)) -> Option<Usage> {
    let count = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
    let usage = Usage { input_tokens: count(input), output_tokens: count(output), cost_usd };
    (usage != Usage::default()).then_some(usage)
}
