//! Rows that are locked: a run, and the attempt of one of its tasks.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::runs::{Provider, RunStatus, TaskStatus};
use ensemble_types::time::Timestamp;

use super::sql::{Sql, Value, ids, list, sql, two_sqls, values};
use super::{changed, ended, work, work_for};
use crate::domain::{Counts, Retry, RunEvent, run_transition};

/// A run whose row is locked until the transaction ends. [`LockedRun::save`] writes what was changed.
#[derive(Clone, Debug)]
pub(super) struct LockedRun {
    pub(super) id: RunId,
    pub(super) owner: UserId,
    pub(super) status: RunStatus,
    pub(super) max_concurrency: i32,
    pub(super) spread: bool,
    pub(super) pinned: bool,
    pub(super) machine: Option<String>,
    pub(super) counts: Counts,
    /// The version that this transaction makes.
    pub(super) version: i64,
    /// The database's clock when it was locked.
    pub(super) now: Timestamp,
    /// There is something to save.
    pub(super) changed: bool,
}

pub(super) type RunTypes = (
    Uid,
    Uid,
    Text,
    Integer,
    Bool,
    Bool,
    Nullable<Text>,
    (Integer, Integer, Integer, Integer, Integer, Integer),
    BigInt,
    Moment,
);

#[derive(Queryable)]
pub(super) struct RunRow {
    id: RunId,
    owner: UserId,
    status: String,
    max_concurrency: i32,
    spread: bool,
    pinned: bool,
    machine: Option<String>,
    counts: (i32, i32, i32, i32, i32, i32),
    version: i64,
    now: Timestamp,
}

macro_rules! run_columns {
    () => {
        "r.id, r.owner_id, r.status, r.max_concurrency, r.spread, r.pinned, r.machine_id, \
         r.queued, r.running, r.completed, r.failed, r.cancelled, r.ready, r.version, {}"
    };
}
pub(super) use run_columns;

impl RunRow {
    pub(super) fn locked(self, operation: &'static str) -> Result<LockedRun, StoreError> {
        let (queued, running, completed, failed, cancelled, ready) = self.counts;
        Ok(LockedRun {
            id: self.id,
            owner: self.owner,
            status: run_status(&self.status, operation)?,
            max_concurrency: self.max_concurrency,
            spread: self.spread,
            pinned: self.pinned,
            machine: self.machine,
            counts: Counts { queued, running, completed, failed, cancelled, ready },
            version: self.version + 1,
            now: self.now,
            changed: false,
        })
    }
}

/// Locks a run; nothing when there is none.
pub(super) fn lock_run(tx: &mut Conn, id: RunId) -> Result<Option<LockedRun>, StoreError> {
    let query: Sql<RunTypes> = two_sqls(
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = {} FOR UPDATE"),
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = {}"),
        values![Value::Now, id],
    );
    let row: Option<RunRow> = on!(tx, |c| query.get_result(c).optional())?;
    row.map(|row| row.locked(tx.operation())).transpose()
}

/// Locks a run unless somebody else holds it.
pub(super) fn try_lock_run(tx: &mut Conn, id: RunId) -> Result<Option<LockedRun>, StoreError> {
    let query: Sql<RunTypes> = two_sqls(
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = {} FOR UPDATE SKIP LOCKED"),
        concat!("SELECT ", run_columns!(), " FROM runs r WHERE r.id = {}"),
        values![Value::Now, id],
    );
    let row: Option<RunRow> = on!(tx, |c| query.get_result(c).optional())?;
    row.map(|row| row.locked(tx.operation())).transpose()
}

impl LockedRun {
    pub(super) fn is_cancelling(&self) -> bool {
        self.status == RunStatus::Canceling
    }

    /// Takes the state that follows from an event.
    ///
    /// # Errors
    /// It cannot happen in this state: a mistake of ours.
    pub(super) fn note(&mut self, event: RunEvent, operation: &'static str) -> Result<(), StoreError> {
        self.status = run_transition(self.status, event).ok_or_else(|| {
            StoreError::bad_row(operation, format!("{event:?} cannot happen to a run that is {:?}", self.status))
        })?;
        Ok(())
    }

    /// Writes the counts and the state that follows from an event, and tells those who wait for it.
    pub(super) fn save(&mut self, tx: &mut Conn, event: RunEvent) -> Result<(), StoreError> {
        self.note(event, tx.operation())?;
        save_runs(tx, &[&*self])
    }

    fn finished_at(&self) -> Option<Timestamp> {
        self.status.is_terminal().then_some(self.now)
    }

    /// Notifier those who wait for the run, and runners when there is something for them.
    pub(super) fn tell(&self, tx: &mut Conn) {
        tx.notify(changed(self.id));
        if self.status.is_terminal() {
            tx.notify(ended(self.id));
        } else if self.counts.ready > 0 && self.counts.running < self.max_concurrency && !self.is_cancelling() {
            match &self.machine {
                Some(machine) if !self.spread && !self.pinned => tx.notify(work_for(self.owner, machine)),
                _ => tx.notify(work(self.owner)),
            }
        }
    }
}

/// Writes runs as they are now, in one statement, and tells those who wait for them.
pub(super) fn save_runs(tx: &mut Conn, runs: &[&LockedRun]) -> Result<(), StoreError> {
    on!(tx, Pg | c | write_all(runs).execute(c), Sqlite | c | write_each(c, runs))?;
    for run in runs {
        run.tell(tx);
    }
    Ok(())
}

fn write_all(runs: &[&LockedRun]) -> Sql<()> {
    let whole = |of: fn(&Counts) -> i32| list(runs.iter().map(|run| Some(i64::from(of(&run.counts)))));
    sql(
        "UPDATE runs SET status = x.status, machine_id = x.machine_id, queued = x.queued, running = x.running, \
         completed = x.completed, failed = x.failed, cancelled = x.cancelled, ready = x.ready, version = x.version, \
         updated_at = x.now, finished_at = x.finished_at \
         FROM unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}) AS x (id, status, machine_id, queued, running, \
         completed, failed, cancelled, ready, version, now, finished_at) WHERE runs.id = x.id",
        vec![
            Value::IdList(runs.iter().map(|run| run.id.into()).collect()),
            list(runs.iter().map(|run| Some(run.status.as_str().to_owned()))),
            list(runs.iter().map(|run| run.machine.clone())),
            whole(|counts| counts.queued),
            whole(|counts| counts.running),
            whole(|counts| counts.completed),
            whole(|counts| counts.failed),
            whole(|counts| counts.cancelled),
            whole(|counts| counts.ready),
            list(runs.iter().map(|run| Some(run.version))),
            list(runs.iter().map(|run| Some(run.now))),
            list(runs.iter().map(|run| run.finished_at())),
        ],
    )
}

fn write_each(c: &mut SqliteConnection, runs: &[&LockedRun]) -> QueryResult<usize> {
    for run in runs {
        let counts = run.counts;
        let update: Sql<()> = sql(
            "UPDATE runs SET status = {}, machine_id = {}, queued = {}, running = {}, completed = {}, failed = {}, \
             cancelled = {}, ready = {}, version = {}, updated_at = {}, finished_at = {} WHERE id = {}",
            values![
                run.status.as_str(),
                run.machine.as_deref(),
                counts.queued,
                counts.running,
                counts.completed,
                counts.failed,
                counts.cancelled,
                counts.ready,
                run.version,
                run.now,
                run.finished_at(),
                run.id
            ],
        );
        update.execute(c)?;
    }
    Ok(runs.len())
}

/// What there is to know about a task to decide what becomes of it.
#[derive(Clone, Debug)]
pub(super) struct HeldTask {
    pub(super) id: TaskId,
    pub(super) status: TaskStatus,
    pub(super) attempt: i32,
    pub(super) pin: Option<String>,
    pub(super) failures: i32,
    pub(super) losses: i32,
    pub(super) retry: Retry,
    pub(super) dependents: i32,
    pub(super) timeout_ms: i64,
}

/// An attempt's lease.
#[derive(Clone, Debug, Queryable)]
pub(super) struct HeldLease {
    pub(super) id: LeaseId,
    pub(super) machine: String,
    pub(super) attempt: i32,
    pub(super) beaten_at: Option<Timestamp>,
    pub(super) expires_at: Timestamp,
    pub(super) timeout_at: Option<Timestamp>,
    pub(super) cancel_requested: bool,
    pub(super) end_reason: Option<String>,
    pub(super) outcome: Option<String>,
}

/// A lease with its task and its run, all locked.
pub(super) struct Hold {
    pub(super) run: LockedRun,
    pub(super) task: HeldTask,
    pub(super) lease: HeldLease,
}

type TaskTypes = (Uid, Text, Integer, Nullable<Text>, Integer, Integer, (Integer, BigInt, Double), Integer, BigInt);
type LeaseTypes =
    (Uid, Text, Integer, Nullable<Moment>, Moment, Nullable<Moment>, Bool, Nullable<Text>, Nullable<Text>);

#[derive(Queryable)]
struct TaskRow {
    id: TaskId,
    status: String,
    attempt: i32,
    pin: Option<String>,
    failures: i32,
    losses: i32,
    retry: (i32, i64, f64),
    dependents: i32,
    timeout_ms: i64,
}

macro_rules! task_columns {
    () => {
        "t.id, t.status, t.attempt, t.machine_id, t.failures, t.losses, \
         t.max_attempts, t.backoff_ms, t.backoff_factor, t.dependents, t.timeout_ms"
    };
}
macro_rules! lease_columns {
    () => {
        "l.id, l.machine_id, l.attempt, l.beaten_at, l.expires_at, l.timeout_at, \
         l.cancel_requested, l.end_reason, l.outcome"
    };
}

impl TaskRow {
    fn held(self, operation: &'static str) -> Result<HeldTask, StoreError> {
        let (max_attempts, backoff_ms, factor) = self.retry;
        Ok(HeldTask {
            id: self.id,
            status: task_status(&self.status, operation)?,
            attempt: self.attempt,
            pin: self.pin,
            failures: self.failures,
            losses: self.losses,
            retry: Retry {
                max_attempts,
                backoff: std::time::Duration::from_millis(u64::try_from(backoff_ms).unwrap_or(0)),
                factor,
            },
            dependents: self.dependents,
            timeout_ms: self.timeout_ms,
        })
    }
}

impl Hold {
    /// Locks leases with their runs and their tasks, in this order, and runs in the order of their ids. Whose they are is
    /// for the caller to see.
    pub(super) fn lock(tx: &mut Conn, leases: &[LeaseId]) -> Result<Vec<Self>, StoreError> {
        macro_rules! query {
            ($lock:literal) => {
                concat!(
                    "SELECT ",
                    run_columns!(),
                    ", ",
                    task_columns!(),
                    ", ",
                    lease_columns!(),
                    " FROM leases l JOIN tasks t ON t.id = l.task_id JOIN runs r ON r.id = l.run_id \
                     WHERE l.id IN {} ORDER BY r.id, t.id",
                    $lock
                )
            };
        }
        let query: Sql<(RunTypes, TaskTypes, LeaseTypes)> =
            two_sqls(query!(" FOR UPDATE OF r, t, l"), query!(""), vec![Value::Now, ids(leases.iter().copied())]);
        let rows: Vec<(RunRow, TaskRow, HeldLease)> = on!(tx, |c| query.load(c))?;
        let operation = tx.operation();
        rows.into_iter()
            .map(|(run, task, lease)| Ok(Self { run: run.locked(operation)?, task: task.held(operation)?, lease }))
            .collect()
    }
}

/// Which open leases of a locked run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    /// Those somebody has to look at now.
    Due,
    /// Those of a machine, granted until then.
    Of(&'a str, Timestamp),
}

/// Locks open leases of a run that is locked, with their tasks.
pub(super) fn lock_leases(
    tx: &mut Conn,
    run: &LockedRun,
    which: Which<'_>,
) -> Result<Vec<(HeldTask, HeldLease)>, StoreError> {
    macro_rules! query {
        ($filter:literal, $lock:literal) => {
            concat!(
                "SELECT ",
                task_columns!(),
                ", ",
                lease_columns!(),
                " FROM leases l JOIN tasks t ON t.id = l.task_id WHERE l.run_id = {} AND l.ended_at IS NULL AND ",
                $filter,
                $lock
            )
        };
    }
    let query: Sql<(TaskTypes, LeaseTypes)> = match which {
        Which::Due => two_sqls(
            query!("l.due_at <= {}", " FOR UPDATE OF t, l"),
            query!("l.due_at <= {}", ""),
            values![run.id, Value::Now],
        ),
        Which::Of(machine, until) => two_sqls(
            query!("l.machine_id = {} AND l.granted_at <= {}", " FOR UPDATE OF t, l"),
            query!("l.machine_id = {} AND l.granted_at <= {}", ""),
            values![run.id, machine, until],
        ),
    };
    let rows: Vec<(TaskRow, HeldLease)> = on!(tx, |c| query.load(c))?;
    let operation = tx.operation();
    rows.into_iter().map(|(task, lease)| Ok((task.held(operation)?, lease))).collect()
}

pub(super) fn run_status(text: &str, operation: &'static str) -> Result<RunStatus, StoreError> {
    use RunStatus as S;
    [S::Queued, S::Running, S::Canceling, S::Completed, S::Failed, S::Cancelled]
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| StoreError::bad_row(operation, format!("{text:?} is no state of a run")))
}

pub(super) fn task_status(text: &str, operation: &'static str) -> Result<TaskStatus, StoreError> {
    use TaskStatus as S;
    [S::Queued, S::Dispatching, S::Running, S::Completed, S::Failed, S::Cancelled, S::DependencyFailed]
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| StoreError::bad_row(operation, format!("{text:?} is no state of a task")))
}

pub(super) fn provider(text: &str, operation: &'static str) -> Result<Provider, StoreError> {
    Provider::ALL
        .into_iter()
        .find(|provider| provider.as_str() == text)
        .ok_or_else(|| StoreError::bad_row(operation, format!("{text:?} is no provider")))
}
