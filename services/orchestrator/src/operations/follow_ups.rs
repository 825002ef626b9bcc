//! Says something more to the agent of a task that has ended.

use ensemble_store_kit::{Conn, Db, Quota};
use ensemble_types::changes::ChangesState;
use ensemble_types::ids::{MachineId, RunId, TaskId, UserId};
use ensemble_types::runs::{Signed, Task, TaskMessage, TaskStatus};

use super::changes::{count, save_run, transition};
use super::runs::{check_unfinished, reserve};
use super::unsettled::settle;
use crate::domain::{ATTEMPT_BYTES, Continuation, NoFollowUp, RunEvent, TaskEvent};
use crate::error::Error;
use crate::store::follow_ups::{self, Addressed};
use crate::store::runs::LockedRun;
use crate::store::signatures::{self, About};
use crate::store::{costs, deleted_machines, permissions, refusals, run_views, runs, task_changes, task_sessions};

/// The task, and the run that it must belong to.
pub(crate) type Place = (UserId, RunId, TaskId);

/// Queues the task again with the message as its prompt. A message that the task has had changes nothing.
pub(crate) async fn say(
    db: &Db,
    max_unfinished: i64,
    quota: &Quota,
    (owner, run, task): Place,
    message: TaskMessage,
) -> Result<Task, Error> {
    let signed = Signed::of(message.signature.clone(), message.signed_body.clone())?;
    loop {
        let said =
            say_settled(db, max_unfinished, quota.clone(), (owner, run, task), (message.clone(), signed.clone()));
        if let Some(task) = said.await? {
            return Ok(task);
        }
        settle(db, run).await?;
    }
}

/// `None` when something of an earlier change of the run has to be done first.
async fn say_settled(
    db: &Db,
    max_unfinished: i64,
    quota: Quota,
    (owner, run, task): Place,
    (message, signed): (TaskMessage, Option<Signed>),
) -> Result<Option<Task>, Error> {
    db.write("say something to a task", move |tx| {
        let mut run = runs::lock(tx, run)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
        let addressed = follow_ups::find(tx, &run, task)?.ok_or(Error::NotFound)?;
        if run.unsettled {
            return Ok(None);
        }
        if follow_ups::record(tx, owner, task, &message.message_id)? {
            check(tx, &run, task, &addressed)?;
            check_unfinished(tx, owner, 1, max_unfinished)?;
            let before = addressed.follow_up.as_ref().map_or(0, String::len)
                + signatures::stored(tx, owner, task, About::Message)?;
            let more = bytes(message.text.len() + signed.as_ref().map_or(0, |signed| signed.signed_body.len()))
                - bytes(before);
            drop(reserve(tx, &quota, owner, ATTEMPT_BYTES.saturating_add(more))?);
            run.stored_bytes = run.stored_bytes.saturating_add(more);
            signatures::replace(tx, owner, task, About::Message, signed.as_ref())?;
            go_on(tx, &mut run, task, &addressed, &message.text)?;
        }
        let view = run_views::run(tx, owner, run.id)?.ok_or(Error::NotFound)?;
        let read = run_views::tasks(tx, &view, addressed.position, addressed.position + 1)?;
        read.into_iter().next().map(Some).ok_or(Error::NotFound)
    })
    .await
}

fn check(tx: &mut Conn, run: &LockedRun, task: TaskId, addressed: &Addressed) -> Result<(), Error> {
    if run.is_cancelling() {
        return Err(Error::Cancelling);
    }
    let machine: Option<MachineId> = addressed.machine.as_deref().and_then(|machine| machine.parse().ok());
    let continuation = Continuation {
        status: addressed.status,
        is_live: !task_sessions::of_tasks(tx, run.owner, &[task])?.is_empty(),
        has_session: addressed.session.is_some() && machine.is_some(),
        dependent_runs: follow_ups::dependent_runs(tx, run.owner, task)?,
        dependency_open: follow_ups::dependency_open(tx, run.owner, task)?,
        changes: task_changes::of_task(tx, run.owner, task)?.map_or(ChangesState::None, |changes| changes.state()),
    };
    continuation.check().map_err(Error::NoFollowUp)?;
    deleted_machines::lock_shared(tx, run.owner)?;
    let needed: Vec<MachineId> = machine.into_iter().collect();
    if deleted_machines::gone(tx, run.owner, &needed)?.is_empty() {
        Ok(())
    } else {
        Err(Error::NoFollowUp(NoFollowUp::MachineDeleted))
    }
}

fn go_on(tx: &mut Conn, run: &mut LockedRun, task: TaskId, addressed: &Addressed, text: &str) -> Result<(), Error> {
    let queued = transition(tx, addressed.status, TaskEvent::FollowedUp)?;
    if addressed.status == TaskStatus::Completed {
        run.counts.completed -= 1;
    } else {
        run.counts.failed -= 1;
    }
    run.counts.queued += 1;
    run.counts.ready += 1;
    run.counts.ready -= count(follow_ups::hold_dependents(tx, run, task)?);
    follow_ups::mark_stale(tx, run.owner, task)?;
    refusals::forget(tx, run.owner, &[task])?;
    permissions::forget(tx, run.owner, &[task])?;
    costs::renew(tx, run.owner, &[task])?;
    // The session is on one machine, so the task is pinned to it from now on.
    follow_ups::queue(tx, run, task, addressed, queued, text)?;
    run.pinned = true;
    run.cancel_reason = None;
    run.apply_event(RunEvent::Retried, tx.operation())?;
    let event = run.counts.event();
    save_run(tx, run, event)?;
    Ok(())
}

fn bytes(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
