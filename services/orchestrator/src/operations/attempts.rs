//! The end of attempts: what becomes of their tasks, of the tasks that depend on them, and of the runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ensemble_store_kit::{Conn, StoreError};
use ensemble_types::ids::RunId;
use ensemble_types::runs::TaskStatus;

use super::changes::{LockedRuns, locked, release_machine, transition};
use super::dependents::{Share, tell};
use super::topics::output;
use crate::domain::{AttemptEnd, attempt_outcome};
use crate::store::ended_tasks::Ended;
use crate::store::leases::LockedLease;
use crate::store::runs::LockedRun;
use crate::store::tasks::{AttemptResults, EndedTask, LockedTask};
use crate::store::usage::Spent;
use crate::store::{diffs, leases, task_changes, task_sessions, tasks};

/// An attempt that ends. Its lease is open and its run is locked.
pub(super) struct EndingAttempt {
    pub(super) run: RunId,
    pub(super) task: LockedTask,
    pub(super) lease: LockedLease,
    pub(super) end: AttemptEnd,
    pub(super) results: AttemptResults,
}

/// What became of a task whose attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) status: TaskStatus,
    /// The pause before the next attempt, or before the machine gets a task of the provider again.
    pub(crate) pause: Option<Duration>,
}

/// Ends attempts and updates the counts of the runs. The caller saves the runs, once for everything that it changed.
pub(super) fn end_attempts(
    tx: &mut Conn,
    runs: &mut LockedRuns,
    attempts: Vec<EndingAttempt>,
    max_losses: i32,
) -> Result<Vec<Finished>, StoreError> {
    let mut finished = Vec::with_capacity(attempts.len());
    let mut to_tell: BTreeMap<RunId, Vec<Ended>> = BTreeMap::new();
    let mut spent = Spent::default();
    for attempt in attempts {
        let run = locked(runs, attempt.run, tx.operation())?;
        let (task, has_dependents) = (attempt.task.id, attempt.task.dependents > 0);
        let usage = attempt.results.usage.unwrap_or_default();
        spent.add(run.owner, run.now, &attempt.lease.machine_id, attempt.task.provider, usage);
        let ended = end_attempt(tx, run, attempt, max_losses)?;
        if has_dependents && ended.status.is_terminal() {
            let has_completed = ended.status == TaskStatus::Completed;
            to_tell.entry(run.id).or_default().push(Ended { id: task, has_completed, notified_until: None });
        }
        finished.push(ended);
    }
    spent.save(tx)?;
    let mut share = Share::default();
    for (run, ended) in to_tell {
        tell(tx, locked(runs, run, tx.operation())?, ended, &mut share)?;
    }
    Ok(finished)
}

fn end_attempt(
    tx: &mut Conn,
    run: &mut LockedRun,
    attempt: EndingAttempt,
    max_losses: i32,
) -> Result<Finished, StoreError> {
    let EndingAttempt { task, lease, end, results, .. } = attempt;
    let reason = match &end {
        AttemptEnd::Reported(..) | AttemptEnd::Refused { .. } | AttemptEnd::Quota { .. } | AttemptEnd::CostLimit(_) => {
            "finished"
        }
        AttemptEnd::NeverStarted => "unbeaten",
        AttemptEnd::MachineLost => "expired",
        AttemptEnd::TimedOut => "timeout",
        AttemptEnd::MachineDeleted { .. } => "deleted",
    };
    let refused = matches!(end, AttemptEnd::Refused { .. });
    let wait = if let AttemptEnd::Quota { wait, .. } = &end { Some(*wait) } else { None };
    let is_report = reason == "finished";
    let outcome = attempt_outcome(end, run.is_cancelling(), task.retry, (task.failures, task.losses), max_losses);
    let status = transition(tx, task.status, outcome.event)?;
    run.counts.running -= 1;
    run.stored_bytes = run.stored_bytes.saturating_add(lease.uncounted_output() + results.text_bytes());
    match status {
        TaskStatus::Completed => run.counts.completed += 1,
        TaskStatus::Cancelled => run.counts.cancelled += 1,
        TaskStatus::Queued => {
            run.counts.queued += 1;
            run.counts.ready += i32::from(outcome.pause.is_none());
        }
        _ => run.counts.failed += 1,
    }
    leases::end(tx, lease.id, run.now, reason, is_report.then_some(status), refused)?;
    if refused {
        release_machine(tx, run, &lease.machine_id)?;
    } else if let Some(changes) = &results.changes {
        run.stored_bytes = run.stored_bytes.saturating_sub(diffs::clear_older(tx, run.owner, task.id, lease.attempt)?);
        task_changes::record(tx, run, task.id, &lease.machine_id, changes)?;
    }
    if let Some(session) = results.session {
        task_sessions::begun(tx, run.owner, task.id, session)?;
    }
    let task = EndedTask {
        id: task.id,
        owner: run.owner,
        status,
        version: run.version,
        failures: outcome.failures,
        losses: outcome.losses,
        not_before: outcome.pause.map(|pause| run.now.plus(pause)),
        error: outcome.error,
        results,
        uncounted: refused || wait.is_some(),
        now: run.now,
    };
    tasks::end_attempt(tx, &task)?;
    tx.notify(output(lease.id));
    Ok(Finished { status, pause: outcome.pause.or(wait) })
}
