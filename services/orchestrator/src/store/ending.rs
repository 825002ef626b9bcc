//! The ends of attempts: what becomes of their tasks, of those that wait for them, and of the runs.
//!
//! However many attempts end in one transaction, and whatever waits for them: the statements are as many as for one.

use std::collections::BTreeMap;
use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use ensemble_store_kit::types::Uid;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::runs::{TaskError, TaskStatus, Usage};
use ensemble_types::time::Timestamp;

use super::held::{HeldLease, HeldTask, LockedRun};
use super::output;
use super::sql::{Sql, Value, ids, list, sql, two_sqls, values};
use crate::domain::{Ending, TaskEvent, judge, task_transition};

/// What follows from the end of one task may take so long.
const LONG: Duration = Duration::from_secs(20);
/// More tasks than this that wait for those that end are many.
const MANY: i32 = 500;

/// The runs that a transaction has locked and changes.
pub(super) type Runs = BTreeMap<RunId, LockedRun>;

/// An attempt that ends. Its lease is open, its run is locked.
pub(super) struct EndingAttempt {
    pub(super) run: RunId,
    pub(super) task: HeldTask,
    pub(super) lease: HeldLease,
    pub(super) ending: Ending,
    pub(super) results: Results,
}

/// What a runner reported of an attempt beside how it ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    pub(super) exit_code: Option<i32>,
    pub(super) output_summary: Option<String>,
    pub(super) provider_session_id: Option<String>,
    pub(super) usage: Option<Usage>,
}

/// What became of a task whose attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) status: TaskStatus,
    /// Until another attempt.
    pub(crate) pause: Option<Duration>,
}

/// Ends attempts. The counts of the runs are changed but not saved: the caller does, once for all that it did.
pub(super) fn end_attempts(
    tx: &mut Conn,
    runs: &mut Runs,
    attempts: Vec<EndingAttempt>,
    max_losses: i32,
) -> Result<Vec<Finished>, StoreError> {
    let mut finished = Vec::with_capacity(attempts.len());
    let mut rows = Vec::with_capacity(attempts.len());
    let (mut done, mut lost, mut waiting) = (Vec::new(), Vec::new(), 0_i32);
    for attempt in attempts {
        let run = runs.get_mut(&attempt.run).ok_or_else(|| not_locked(tx))?;
        let row = decide(tx, run, attempt, max_losses)?;
        match row.next {
            TaskStatus::Completed if row.task.dependents > 0 => {
                waiting = waiting.saturating_add(row.task.dependents);
                done.push(row.task.id);
            }
            TaskStatus::Failed | TaskStatus::Cancelled if row.task.dependents > 0 => lost.push(row.task.id),
            _ => {}
        }
        finished.push(Finished { status: row.next, pause: row.pause });
        tx.notify(output(row.lease.id));
        rows.push(row);
    }
    if !rows.is_empty() {
        write(tx, &rows)?;
    }
    if waiting > MANY {
        take_time(tx)?;
    }
    if !done.is_empty() {
        free_dependents(tx, runs, &done)?;
    }
    if !lost.is_empty() {
        fail_dependents(tx, runs, &lost)?;
    }
    Ok(finished)
}

/// A decision, as it is written.
struct Row {
    task: HeldTask,
    lease: HeldLease,
    /// The run's lock was taken then, and makes this version.
    now: Timestamp,
    version: i64,
    reason: &'static str,
    next: TaskStatus,
    failures: i32,
    losses: i32,
    pause: Option<Duration>,
    error: Option<TaskError>,
    results: Results,
}

fn decide(tx: &Conn, run: &mut LockedRun, attempt: EndingAttempt, max_losses: i32) -> Result<Row, StoreError> {
    let EndingAttempt { task, lease, ending, results, .. } = attempt;
    let reason = match &ending {
        Ending::Reported(..) => "finished",
        Ending::NeverBegun => "unbeaten",
        Ending::MachineLost => "expired",
        Ending::TimedOut => "timeout",
        Ending::MachineDeleted { .. } => "deleted",
    };
    let verdict = judge(ending, run.is_cancelling(), task.retry, (task.failures, task.losses), max_losses);
    let next = transition(tx, task.status, verdict.event)?;
    run.counts.running -= 1;
    match next {
        TaskStatus::Completed => run.counts.completed += 1,
        TaskStatus::Cancelled => run.counts.cancelled += 1,
        TaskStatus::Queued => {
            run.counts.queued += 1;
            run.counts.ready += i32::from(verdict.pause.is_none());
        }
        _ => run.counts.failed += 1,
    }
    Ok(Row {
        task,
        lease,
        now: run.now,
        version: run.version,
        reason,
        next,
        failures: verdict.failures,
        losses: verdict.losses,
        pause: verdict.pause,
        error: verdict.error,
        results,
    })
}

pub(super) fn transition(tx: &Conn, from: TaskStatus, event: TaskEvent) -> Result<TaskStatus, StoreError> {
    task_transition(from, event).ok_or_else(|| {
        StoreError::bad_row(tx.operation(), format!("{event:?} cannot happen to a task that is {from:?}"))
    })
}

fn not_locked(tx: &Conn) -> StoreError {
    StoreError::bad_row(tx.operation(), "a task changed whose run is not locked")
}

impl Row {
    fn outcome(&self) -> Option<&'static str> {
        (self.reason == "finished").then(|| self.next.as_str())
    }

    fn finished_at(&self) -> Option<Timestamp> {
        self.next.is_terminal().then_some(self.now)
    }

    fn not_before(&self) -> Option<Timestamp> {
        self.pause.map(|pause| self.now.plus(pause))
    }

    fn tokens(&self, which: fn(&Usage) -> Option<u64>) -> Option<i64> {
        let count = self.results.usage.as_ref().and_then(which)?;
        Some(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn cost(&self) -> Option<f64> {
        self.results.usage.and_then(|usage| usage.cost_usd)
    }
}

fn write(tx: &mut Conn, rows: &[Row]) -> Result<(), StoreError> {
    on!(tx, Pg | c | write_all(rows).execute(c), Sqlite | c | write_each(c, rows))?;
    Ok(())
}

/// Both tables in one statement. The planner takes `unnest` for a few rows and so finds them by their keys, however many
/// there are.
fn write_all(rows: &[Row]) -> Sql<()> {
    let text = |of: fn(&Row) -> Option<&str>| list(rows.iter().map(|row| of(row).map(str::to_owned)));
    let whole = |of: fn(&Row) -> Option<i64>| list(rows.iter().map(of));
    let time = |of: fn(&Row) -> Option<Timestamp>| list(rows.iter().map(of));
    sql(
        "WITH ended AS (UPDATE leases SET ended_at = x.now, end_reason = x.reason, outcome = x.outcome \
             FROM unnest({}, {}, {}, {}) AS x (id, now, reason, outcome) WHERE leases.id = x.id) \
         UPDATE tasks SET status = x.status, version = x.version, failures = x.failures, losses = x.losses, \
             not_before = x.not_before, error_code = x.error_code, error_message = x.error_message, \
             output_summary = x.output_summary, exit_code = x.exit_code, input_tokens = x.input_tokens, \
             output_tokens = x.output_tokens, cost_usd = x.cost_usd, \
             provider_session_id = COALESCE(x.provider_session_id, tasks.provider_session_id), \
             finished_at = x.finished_at, started_at = COALESCE(tasks.started_at, x.now) \
         FROM unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}) AS x \
             (id, now, status, version, failures, losses, not_before, error_code, error_message, output_summary, \
              exit_code, input_tokens, output_tokens, cost_usd, provider_session_id, finished_at) \
         WHERE tasks.id = x.id",
        vec![
            Value::IdList(rows.iter().map(|row| row.lease.id.into()).collect()),
            time(|row| Some(row.now)),
            text(|row| Some(row.reason)),
            text(Row::outcome),
            Value::IdList(rows.iter().map(|row| row.task.id.into()).collect()),
            time(|row| Some(row.now)),
            text(|row| Some(row.next.as_str())),
            whole(|row| Some(row.version)),
            whole(|row| Some(row.failures.into())),
            whole(|row| Some(row.losses.into())),
            time(Row::not_before),
            text(|row| row.error.as_ref().map(|error| error.code.as_str())),
            text(|row| row.error.as_ref().map(|error| error.message.as_str())),
            text(|row| row.results.output_summary.as_deref()),
            whole(|row| row.results.exit_code.map(i64::from)),
            whole(|row| row.tokens(|usage| usage.input_tokens)),
            whole(|row| row.tokens(|usage| usage.output_tokens)),
            list(rows.iter().map(Row::cost)),
            text(|row| row.results.provider_session_id.as_deref()),
            time(Row::finished_at),
        ],
    )
}

fn write_each(c: &mut SqliteConnection, rows: &[Row]) -> QueryResult<usize> {
    for row in rows {
        let lease: Sql<()> = sql(
            "UPDATE leases SET ended_at = {}, end_reason = {}, outcome = {} WHERE id = {}",
            values![row.now, row.reason, row.outcome(), row.lease.id],
        );
        lease.execute(c)?;
        let task: Sql<()> = sql(
            "UPDATE tasks SET status = {}, version = {}, failures = {}, losses = {}, not_before = {}, error_code = {}, \
             error_message = {}, output_summary = {}, exit_code = {}, input_tokens = {}, output_tokens = {}, \
             cost_usd = {}, provider_session_id = COALESCE({}, provider_session_id), finished_at = {}, \
             started_at = COALESCE(started_at, {}) WHERE id = {}",
            values![
                row.next.as_str(),
                row.version,
                row.failures,
                row.losses,
                row.not_before(),
                row.error.as_ref().map(|error| error.code.as_str()),
                row.error.as_ref().map(|error| error.message.as_str()),
                row.results.output_summary.as_deref(),
                row.results.exit_code,
                row.tokens(|usage| usage.input_tokens),
                row.tokens(|usage| usage.output_tokens),
                row.cost(),
                row.results.provider_session_id.as_deref(),
                row.finished_at(),
                row.now,
                row.task.id
            ],
        );
        task.execute(c)?;
    }
    Ok(rows.len())
}

/// How many tasks of each run.
type PerRun = Vec<(RunId, i64)>;

fn count(found: Vec<RunId>) -> PerRun {
    let mut counts: BTreeMap<RunId, i64> = BTreeMap::new();
    for run in found {
        *counts.entry(run).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// Counts down those that wait for tasks that completed. The runs' rows are not saved yet, so their next version is the
/// one that this transaction makes.
fn free_dependents(tx: &mut Conn, runs: &mut Runs, done: &[TaskId]) -> Result<(), StoreError> {
    macro_rules! update {
        () => {
            "UPDATE tasks SET open_deps = open_deps - x.met, version = CASE WHEN open_deps = x.met \
             THEN (SELECT r.version + 1 FROM runs r WHERE r.id = tasks.run_id) ELSE version END \
             FROM (SELECT d.task_id, count(*) AS met FROM dependencies d WHERE d.depends_on IN {} GROUP BY d.task_id) x \
             WHERE tasks.id = x.task_id AND tasks.status = 'queued' RETURNING run_id, open_deps"
        };
    }
    let given = vec![ids(done.iter().copied())];
    let freed: PerRun = on!(
        tx,
        Pg | c | {
            let text = concat!(
                "WITH freed AS (",
                update!(),
                ") SELECT run_id, count(*) FROM freed WHERE open_deps = 0 GROUP BY run_id"
            );
            sql::<(Uid, BigInt)>(text, given).load(c)
        },
        Sqlite | c | {
            let left = sql::<(Uid, Integer)>(update!(), given).load::<(RunId, i32)>(c);
            left.map(|left| count(left.into_iter().filter(|(_, open)| *open == 0).map(|(run, _)| run).collect()))
        }
    )?;
    for (run, freed) in freed {
        let run = runs.get_mut(&run).ok_or_else(|| not_locked(tx))?;
        run.counts.ready += i32::try_from(freed).unwrap_or(i32::MAX);
    }
    Ok(())
}

/// 10,000 tasks that wait for one, or in a chain, take half a second on a quiet machine. They must not be refused on a busy
/// one: the report that they follow from would come again and again.
fn take_time(tx: &mut Conn) -> Result<(), StoreError> {
    tx.extend_deadline(LONG);
    if tx.is_postgres() {
        tx.batch(&format!("SET LOCAL statement_timeout = {}", LONG.as_millis()))?;
    }
    Ok(())
}

/// Gives up all that wait, directly or not, for tasks that did not complete.
pub(super) fn fail_dependents(tx: &mut Conn, runs: &mut Runs, roots: &[TaskId]) -> Result<(), StoreError> {
    macro_rules! update {
        () => {
            "UPDATE tasks SET status = {}, finished_at = {}, \
             version = (SELECT r.version + 1 FROM runs r WHERE r.id = tasks.run_id), \
             error_code = 'DEPENDENCY_FAILED', error_message = 'A task that this one waits for did not complete.' \
             WHERE id IN (SELECT id FROM lost) RETURNING run_id"
        };
    }
    macro_rules! lost {
        () => {
            "WITH RECURSIVE lost (id) AS ( \
             SELECT d.task_id FROM dependencies d JOIN tasks t ON t.id = d.task_id \
             WHERE d.depends_on IN {} AND t.status = 'queued' \
             UNION \
             SELECT d.task_id FROM lost JOIN dependencies d ON d.depends_on = lost.id \
             JOIN tasks t ON t.id = d.task_id WHERE t.status = 'queued')"
        };
    }
    let status = transition(tx, TaskStatus::Queued, TaskEvent::DependencyFailed)?;
    take_time(tx)?;
    let given = vec![ids(roots.iter().copied()), status.as_str().into(), Value::Now];
    let lost: PerRun = on!(
        tx,
        Pg | c | {
            let text =
                concat!(lost!(), ", gone AS (", update!(), ") SELECT run_id, count(*) FROM gone GROUP BY run_id");
            sql::<(Uid, BigInt)>(text, given).load(c)
        },
        Sqlite | c | sql::<Uid>(concat!(lost!(), " ", update!()), given).load::<RunId>(c).map(count)
    )?;
    for (run, lost) in lost {
        let run = runs.get_mut(&run).ok_or_else(|| not_locked(tx))?;
        let lost = i32::try_from(lost).unwrap_or(i32::MAX);
        run.counts.queued -= lost;
        run.counts.failed += lost;
    }
    Ok(())
}

/// A run is free to go elsewhere when the machine that took it is gone and holds nothing of it any more.
pub(super) fn let_go(tx: &mut Conn, run: &mut LockedRun, gone: &str) -> Result<(), StoreError> {
    if run.machine.as_deref() != Some(gone) {
        return Ok(());
    }
    let query: Sql<BigInt> = sql(
        "SELECT count(*) FROM leases WHERE run_id = {} AND machine_id = {} AND ended_at IS NULL",
        values![run.id, gone],
    );
    let held: i64 = on!(tx, |c| query.get_result(c))?;
    if held == 0 {
        run.machine = None;
    }
    Ok(())
}

/// The queued tasks of a run that are pinned to a machine, and whether each is ready.
pub(super) fn pinned_tasks(
    tx: &mut Conn,
    run: RunId,
    machine: &str,
    until: Timestamp,
) -> Result<Vec<(TaskId, bool)>, StoreError> {
    let query: Sql<(Uid, Integer, Nullable<Text>)> = two_sqls(
        "SELECT id, open_deps, not_before::text FROM tasks \
         WHERE run_id = {} AND machine_id = {} AND status = 'queued' AND created_at <= {}",
        "SELECT id, open_deps, CAST(not_before AS TEXT) FROM tasks \
         WHERE run_id = {} AND machine_id = {} AND status = 'queued' AND created_at <= {}",
        values![run, machine, until],
    );
    let rows: Vec<(TaskId, i32, Option<String>)> = on!(tx, |c| query.load(c))?;
    Ok(rows.into_iter().map(|(id, open, pause)| (id, open == 0 && pause.is_none())).collect())
}
