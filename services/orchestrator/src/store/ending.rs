//! The end of an attempt: what becomes of its task, of those that wait for it, and of the run, in one transaction.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::TaskId;
use ensemble_types::runs::{TaskError, TaskStatus, Usage};

use super::held::{HeldLease, HeldTask, LockedRun};
use super::sql::{Sql, ids, sql, two_sqls, values};
use super::output;
use crate::domain::{Ending, TaskEvent, judge, task_transition};

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

/// Ends an attempt whose lease is open. The run's counts are changed but not saved: the caller does, once for all that it
/// ended.
pub(super) fn end_attempt(
    tx: &mut Conn,
    run: &mut LockedRun,
    task: &HeldTask,
    lease: &HeldLease,
    ending: Ending,
    results: Results,
    max_losses: i32,
) -> Result<Finished, StoreError> {
    let reason = match &ending {
        Ending::Reported(..) => "finished",
        Ending::NeverBegun => "unbeaten",
        Ending::MachineLost => "expired",
        Ending::TimedOut => "timeout",
        Ending::MachineDeleted { .. } => "deleted",
    };
    let verdict = judge(ending, run.is_cancelling(), task.retry, (task.failures, task.losses), max_losses);
    let next = transition(tx, task.status, verdict.event)?;
    end_lease(tx, run, lease, reason, next)?;
    write_task(tx, run, task, next, &verdict.error, (verdict.failures, verdict.losses), verdict.pause, results)?;
    run.counts.running -= 1;
    match next {
        TaskStatus::Completed => {
            run.counts.completed += 1;
            if task.dependents > 0 {
                run.counts.ready += free_dependents(tx, run, task.id)?;
            }
        }
        TaskStatus::Queued => {
            run.counts.queued += 1;
            run.counts.ready += i32::from(verdict.pause.is_none());
        }
        TaskStatus::Cancelled => run.counts.cancelled += 1,
        _ => run.counts.failed += 1,
    }
    if matches!(next, TaskStatus::Failed | TaskStatus::Cancelled) && task.dependents > 0 {
        fail_dependents(tx, run, &[task.id])?;
    }
    tx.wake(output(lease.id));
    Ok(Finished { status: next, pause: verdict.pause })
}

pub(super) fn transition(tx: &Conn, from: TaskStatus, event: TaskEvent) -> Result<TaskStatus, StoreError> {
    task_transition(from, event).ok_or_else(|| {
        StoreError::bad_row(tx.operation(), format!("{event:?} cannot happen to a task that is {from:?}"))
    })
}

fn end_lease(
    tx: &mut Conn,
    run: &LockedRun,
    lease: &HeldLease,
    reason: &'static str,
    next: TaskStatus,
) -> Result<(), StoreError> {
    let outcome = (reason == "finished").then(|| next.as_str());
    let update: Sql<()> = sql(
        "UPDATE leases SET ended_at = {}, end_reason = {}, outcome = {} WHERE id = {}",
        values![run.now, reason, outcome, lease.id],
    );
    on!(tx, |c| update.execute(c))?;
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "they are the columns of one row, each decided elsewhere")]
fn write_task(
    tx: &mut Conn,
    run: &LockedRun,
    task: &HeldTask,
    next: TaskStatus,
    error: &Option<TaskError>,
    (failures, losses): (i32, i32),
    pause: Option<Duration>,
    results: Results,
) -> Result<(), StoreError> {
    let finished = next.is_terminal().then_some(run.now);
    let usage = results.usage.unwrap_or_default();
    let whole = |count: Option<u64>| count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let update: Sql<()> = sql(
        "UPDATE tasks SET status = {}, version = {}, failures = {}, losses = {}, not_before = {}, error_code = {}, \
         error_message = {}, output_summary = {}, exit_code = {}, input_tokens = {}, output_tokens = {}, cost_usd = {}, \
         provider_session_id = COALESCE({}, provider_session_id), finished_at = {}, \
         started_at = COALESCE(started_at, {}) WHERE id = {}",
        values![
            next.as_str(),
            run.version,
            failures,
            losses,
            pause.map(|pause| run.now.plus(pause)),
            error.as_ref().map(|error| error.code.as_str()),
            error.as_ref().map(|error| error.message.as_str()),
            results.output_summary,
            results.exit_code,
            whole(usage.input_tokens),
            whole(usage.output_tokens),
            usage.cost_usd,
            results.provider_session_id,
            finished,
            run.now,
            task.id
        ],
    );
    on!(tx, |c| update.execute(c))?;
    Ok(())
}

/// Counts down those that wait for a task that completed; gives how many became ready by it.
fn free_dependents(tx: &mut Conn, run: &LockedRun, done: TaskId) -> Result<i32, StoreError> {
    macro_rules! update {
        () => {
            "UPDATE tasks SET open_deps = open_deps - 1, version = CASE WHEN open_deps = 1 THEN {} ELSE version END \
             WHERE id IN (SELECT task_id FROM dependencies WHERE depends_on = {}) AND status = 'queued' \
             RETURNING open_deps"
        };
    }
    let given = values![run.version, done];
    let freed = on!(tx,
        Pg |c| {
            let text = concat!("WITH freed AS (", update!(), ") SELECT count(*) FROM freed WHERE open_deps = 0");
            sql::<BigInt>(text, given).get_result::<i64>(c)
        },
        Sqlite |c| {
            let left = sql::<Integer>(update!(), given).load::<i32>(c);
            left.map(|left| i64::try_from(left.iter().filter(|open| **open == 0).count()).unwrap_or(i64::MAX))
        })?;
    Ok(i32::try_from(freed).unwrap_or(i32::MAX))
}

/// Gives up all that wait, directly or not, for tasks that did not complete.
pub(super) fn fail_dependents(tx: &mut Conn, run: &mut LockedRun, roots: &[TaskId]) -> Result<(), StoreError> {
    let update: Sql<()> = sql(
        "WITH RECURSIVE lost (id) AS ( \
             SELECT d.task_id FROM dependencies d JOIN tasks t ON t.id = d.task_id \
             WHERE d.depends_on IN {} AND t.status = 'queued' \
             UNION \
             SELECT d.task_id FROM lost JOIN dependencies d ON d.depends_on = lost.id \
             JOIN tasks t ON t.id = d.task_id WHERE t.status = 'queued') \
         UPDATE tasks SET status = 'dependency_failed', version = {}, finished_at = {}, \
             error_code = 'DEPENDENCY_FAILED', error_message = 'A task that this one waits for did not complete.' \
         WHERE id IN (SELECT id FROM lost)",
        values![ids(roots.iter().copied()), run.version, run.now],
    );
    let lost = on!(tx, |c| update.execute(c))?;
    let lost = i32::try_from(lost).unwrap_or(i32::MAX);
    run.counts.queued -= lost;
    run.counts.failed += lost;
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
    run: &LockedRun,
    machine: &str,
    until: ensemble_types::time::Timestamp,
) -> Result<Vec<(TaskId, bool)>, StoreError> {
    let query: Sql<(ensemble_store_kit::types::Uid, Integer, Nullable<Text>)> = two_sqls(
        "SELECT id, open_deps, not_before::text FROM tasks \
         WHERE run_id = {} AND machine_id = {} AND status = 'queued' AND created_at <= {}",
        "SELECT id, open_deps, CAST(not_before AS TEXT) FROM tasks \
         WHERE run_id = {} AND machine_id = {} AND status = 'queued' AND created_at <= {}",
        values![run.id, machine, until],
    );
    let rows: Vec<(TaskId, i32, Option<String>)> = on!(tx, |c| query.load(c))?;
    Ok(rows.into_iter().map(|(id, open, pause)| (id, open == 0 && pause.is_none())).collect())
}
