//! Runs as their owners see them.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, cursor, on};
use ensemble_types::ids::{RunId, TaskId, UserId};
use ensemble_types::runs::{ChangedTask, Run, RunStatus, RunSummary, TaskError, TaskStatus};
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
pub(super) struct RunRow {
    id: RunId,
    title: Option<String>,
    status: String,
    cancel_reason: Option<String>,
    max_concurrency: i32,
    pub(super) spread: bool,
    counts: (i32, i32, i32, i32, i32, i32),
    version: i64,
    times: (Timestamp, Timestamp, Option<Timestamp>, Option<Timestamp>),
    pub(super) machine: Option<String>,
}

macro_rules! columns {
    () => {
        "SELECT id, title, status, cancel_reason, max_concurrency, spread, total, queued, running, completed, failed, \
         cancelled, version, created_at, updated_at, started_at, finished_at, machine_id FROM runs "
    };
}

impl RunRow {
    pub(super) fn run(self, operation: &'static str) -> Result<Run, StoreError> {
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

pub(super) fn find(c: &mut Conn, owner: UserId, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let query: Sql<RunTypes> = sql(concat!(columns!(), "WHERE id = {} AND owner_id = {}"), values![id, owner]);
    on!(c, |c| query.get_result(c).optional())
}

/// Who asked for leases lately.
pub(super) fn runners(c: &mut Conn, owner: UserId, wanted: bool) -> Result<Vec<Runner>, StoreError> {
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

pub(super) type ChangedTypes =
    (Uid, Text, Integer, Integer, Bool, Text, Nullable<Text>, Nullable<Text>, Nullable<Text>);

#[derive(Queryable)]
pub(super) struct ChangedRow {
    id: TaskId,
    status: String,
    attempt: i32,
    open_deps: i32,
    paused: bool,
    pub(super) provider: String,
    pub(super) pin: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
}

impl ChangedRow {
    pub(super) fn changed(
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
