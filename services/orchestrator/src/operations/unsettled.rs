//! What a change means for a whole run, when that is more than one transaction should do: a run can have 10,000 tasks. The
//! first transaction makes the change and does some of it. The others do the rest, each of them one batch.

use std::collections::{BTreeMap, HashMap};

use ensemble_store_kit::{Conn, Db, StoreError, Subscription};
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::TaskStatus;

use super::changes::{count, save_run, transition};
use super::dependents::{Share, tell};
use super::machines::fail_stranded;
use super::topics::run_unsettled;
use crate::domain::TaskEvent;
use crate::store::runs::{LockedRun, Requeue};
use crate::store::{costs, ended_tasks, follow_ups, permissions, refusals, runs, task_changes, tasks};

/// Tasks that one transaction cancels at most.
const CANCELLED: i64 = 500;
/// Tasks that one transaction checks for being queued again. Each may depend on 255 others.
const REQUEUED: i32 = 200;
/// The most ended tasks whose dependents one transaction notifies.
const ENDED: i64 = 100;
/// Runs that are looked for at once.
const RUNS: i64 = 16;

/// Completes when something is left to do.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(run_unsettled())
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Some,
    /// There is something to do, and other transactions have locked the runs.
    Locked,
    Nothing,
}

/// Does one batch in some runs in which something is left to do.
pub(crate) async fn step(db: &Db) -> Result<Step, StoreError> {
    let left = db.read("look for unsettled runs", |c| runs::unsettled(c, RUNS)).await?;
    let mut done = if left.is_empty() { Step::Nothing } else { Step::Locked };
    for id in left {
        let settled = db.write("settle some of a run", move |tx| match runs::try_lock(tx, id)? {
            Some(mut run) if run.unsettled => settle_some(tx, &mut run).map(|()| true),
            _ => Ok::<_, StoreError>(false),
        });
        match settled.await {
            Ok(true) => done = Step::Some,
            Ok(false) => {}
            // It must not keep the other runs from being settled.
            Err(error) => tracing::warn!(run.id = %id, %error, "Could not settle a run"),
        }
    }
    Ok(done)
}

/// Does all that is left to do in a run, for a change that needs it.
pub(super) async fn settle(db: &Db, id: RunId) -> Result<(), StoreError> {
    let one = move |tx: &mut Conn| match runs::lock(tx, id)?.filter(|run| run.unsettled) {
        Some(mut run) => settle_some(tx, &mut run).map(|()| run.unsettled),
        None => Ok::<_, StoreError>(false),
    };
    while db.write("settle some of a run", one).await? {}
    Ok(())
}

fn settle_some(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    if run.requeue.is_some() {
        requeue_some(tx, run)?;
    } else if run.is_cancelling() && run.counts.queued > 0 {
        cancel_some(tx, run)?;
    } else {
        let ended = ended_tasks::take(tx, run, ENDED)?;
        run.unsettled = i64::try_from(ended.len()).is_ok_and(|taken| taken >= ENDED);
        tell(tx, run, ended, &mut Share::default())?;
    }
    // All that depends on the last tasks can have ended otherwise.
    if run.status.is_terminal() { runs::set_unsettled(tx, run) } else { save_run(tx, run, run.counts.event()) }
}

/// Begins to cancel the queued tasks of a run that is being cancelled.
pub(super) fn cancel_queued(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    cancel_some(tx, run)?;
    leave(tx, run, run.counts.queued > 0);
    Ok(())
}

fn cancel_some(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    let status = transition(tx, TaskStatus::Queued, TaskEvent::Cancelled)?;
    let cancelled = count(tasks::cancel_queued(tx, run, status, CANCELLED)?);
    run.counts.cancelled += cancelled;
    run.counts.queued -= cancelled;
    Ok(())
}

/// Begins to queue the tasks of a run again that ended without completing. The run counts all of them as queued from now on.
pub(super) fn requeue_ended(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    run.counts.queued += run.counts.failed + run.counts.cancelled;
    (run.counts.failed, run.counts.cancelled) = (0, 0);
    run.requeue = Some(Requeue { from: 0, version: run.version });
    requeue_some(tx, run)?;
    leave(tx, run, run.requeue.is_some());
    Ok(())
}

fn requeue_some(tx: &mut Conn, run: &mut LockedRun) -> Result<(), StoreError> {
    let Some(Requeue { from, version }) = run.requeue else { return Ok(()) };
    let placed = tasks::placed(tx, run, from, REQUEUED)?;
    let is_last = count(placed.len()) < REQUEUED;
    run.requeue = (!is_last).then_some(Requeue { from: from.saturating_add(REQUEUED), version });
    let ended: Vec<_> = placed.into_iter().filter(|task| task.failed_before(version)).collect();
    let ids: Vec<TaskId> = ended.iter().map(|task| task.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let queued = transition(tx, TaskStatus::Failed, TaskEvent::Retried)?;
    tasks::requeue(tx, run, &ids, queued)?;
    refusals::forget(tx, run.owner, &ids)?;
    permissions::forget(tx, run.owner, &ids)?;
    costs::renew(tx, run.owner, &ids)?;
    task_changes::withdraw_orders(tx, &ids)?;
    follow_ups::clear_stale(tx, run.owner, &ids)?;
    run.counts.ready += count(set_open_dependencies(tx, run.owner, &ids)?);
    let mut pins: Vec<MachineId> = ended.iter().filter_map(|task| task.pin.as_ref()?.parse().ok()).collect();
    pins.sort_unstable();
    pins.dedup();
    fail_stranded(tx, run, &ids, &pins)
}

/// Counts the open dependencies of tasks that are queued again: a dependency may have been, or may be later. Returns how many of
/// the tasks are ready.
fn set_open_dependencies(tx: &mut Conn, owner: UserId, requeued: &[TaskId]) -> Result<usize, StoreError> {
    let open: HashMap<TaskId, i64> = tasks::open_dependencies(tx, owner, requeued)?.into_iter().collect();
    let mut alike: BTreeMap<i64, Vec<TaskId>> = BTreeMap::new();
    for task in requeued {
        alike.entry(open.get(task).copied().unwrap_or(0)).or_default().push(*task);
    }
    let ready = alike.get(&0).map_or(0, Vec::len);
    for (open, of) in alike {
        tasks::set_open_dependencies(tx, owner, &of, i32::try_from(open).unwrap_or(i32::MAX))?;
    }
    Ok(ready)
}

/// Leaves the rest to the worker, if there is one.
fn leave(tx: &mut Conn, run: &mut LockedRun, has_rest: bool) {
    if has_rest {
        run.unsettled = true;
        tx.notify(run_unsettled());
    }
}
