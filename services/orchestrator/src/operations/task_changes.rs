//! What becomes of the changes of tasks: the owner's wishes, the orders to machines that follow from them, and their results.

use ensemble_store_kit::{Db, StoreError};
use ensemble_types::changes::OrderOutcome;
use ensemble_types::ids::{MachineId, OrderId, RunId, TaskId, UserId};
use ensemble_types::runs::{ChangesState, Signed, Task};
use ensemble_types::signatures::ChangesOrder;

use super::follow_ups::Place;
use super::topics::{notify_run, work_for};
use crate::domain::{ChangesWish, ORDER_WAITS, RunnerRequest, WishOutcome, lost_with_machine, settled, wish};
use crate::error::Error;
use crate::store::signatures::{self, About};
use crate::store::{diffs, run_views, runs, task_changes};

/// Orders that are withdrawn at once.
const BATCH: i64 = 64;

/// Gives the machine that has the worktree an order, unless that was done before.
pub(crate) async fn ask(
    db: &Db,
    (owner, run, task): Place,
    what: ChangesWish,
    ChangesOrder { signature, signed_body }: ChangesOrder,
) -> Result<Task, Error> {
    let signed = Signed::of(signature, signed_body)?;
    db.write("order what becomes of changes", move |tx| {
        let run = runs::lock(tx, run)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
        let (now, wanted) = (run.now, run_views::task(tx, owner, run.id, task)?.ok_or(Error::NotFound)?);
        if !wanted.status.is_terminal() {
            return Err(Error::TaskNotOver);
        }
        let changes = task_changes::of_task(tx, owner, task)?.ok_or(Error::NothingToApply(NO_CHANGES))?;
        match wish(changes.state(), what) {
            WishOutcome::AsItIs => return Ok(wanted),
            WishOutcome::Impossible(why) => return Err(Error::NothingToApply(why)),
            WishOutcome::Ordered(state) => {
                task_changes::order(tx, &changes, state, now.plus(ORDER_WAITS))?;
                let length = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
                let before = signatures::stored(tx, owner, task, About::Order)?;
                let now = signed.as_ref().map_or(0, |signed| signed.signed_body.len());
                diffs::count(tx, run.id, length(now) - length(before))?;
                signatures::replace(tx, owner, task, About::Order, signed.as_ref())?;
                task_changes::touch(tx, &run, task)?;
                notify_run(tx, run.id, run.owner, run.now);
                tx.notify(work_for(owner, changes.machine()));
            }
        }
        run_views::task(tx, owner, run.id, task)?.ok_or(Error::NotFound)
    })
    .await
}

const NO_CHANGES: &str = "It is not known what the task changed.";

/// A task, as its owner sees it.
pub(crate) async fn read(db: &Db, owner: UserId, run: RunId, task: TaskId) -> Result<Task, Error> {
    db.read("read a task", move |c| run_views::task(c, owner, run, task)).await?.ok_or(Error::NotFound)
}

/// Records which orders a machine carries out.
pub(crate) async fn take(db: &Db, by: &RunnerRequest) -> Result<(), StoreError> {
    if by.taken_orders.is_empty() {
        return Ok(());
    }
    let by = by.clone();
    let taken = db.read("look for orders that were taken", move |c| task_changes::newly_taken(c, &by)).await?;
    if taken.is_empty() {
        return Ok(());
    }
    db.write("record taken orders", move |tx| task_changes::set_taken(tx, &taken)).await
}

/// Records what came of an order. The same result again changes nothing.
pub(crate) async fn report(
    db: &Db,
    owner: UserId,
    machine: MachineId,
    order: OrderId,
    outcome: OrderOutcome,
    (files, failure): (Vec<String>, Option<String>),
) -> Result<ChangesState, Error> {
    db.write("record the result of an order", move |tx| {
        let (run, task) = task_changes::of_order(tx, owner, &machine, order)?.ok_or(Error::NotFound)?;
        let run = runs::lock(tx, run)?.ok_or(Error::NotFound)?;
        // Read again, after the run was locked.
        let same = task_changes::of_order(tx, owner, &machine, order)?.is_some();
        let changes = task_changes::of_task(tx, owner, task)?.filter(|_| same).ok_or(Error::NotFound)?;
        let Some(state) = settled(changes.state(), changes.before(), outcome) else {
            // The result was reported before, or came after its time.
            return Ok(changes.state());
        };
        diffs::count(tx, run.id, changes.more_than_stored(&files))?;
        task_changes::settle(tx, owner, task, state, Some((&files, failure.as_deref())))?;
        task_changes::touch(tx, &run, task)?;
        notify_run(tx, run.id, run.owner, run.now);
        Ok::<_, Error>(state)
    })
    .await
}

/// Withdraws orders that their machines did not carry out in time.
pub(crate) async fn withdraw_overdue(db: &Db) -> Result<(), StoreError> {
    let overdue = db
        .read("look for overdue orders", |c| {
            let now = c.now()?;
            task_changes::overdue(c, now, BATCH)
        })
        .await?;
    for (run, task) in overdue {
        db.write("withdraw an order", move |tx| {
            let Some(run) = runs::lock(tx, run)? else { return Ok(()) };
            let changes = task_changes::of_task(tx, run.owner, task)?;
            let Some(changes) = changes.filter(|changes| changes.is_overdue(run.now)) else { return Ok(()) };
            task_changes::settle(tx, run.owner, task, changes.before(), None)?;
            task_changes::touch(tx, &run, task)?;
            notify_run(tx, run.id, run.owner, run.now);
            Ok::<_, StoreError>(())
        })
        .await?;
    }
    Ok(())
}

/// The machine was deleted, and its worktrees with it.
pub(crate) async fn lose(db: &Db, owner: UserId, machine: MachineId) -> Result<(), StoreError> {
    let name = machine.clone();
    let concerned =
        db.read("look for a deleted machine's changes", move |c| task_changes::on_machine(c, owner, &name)).await?;
    for (run, task) in concerned {
        let machine = machine.clone();
        db.write("record lost changes", move |tx| {
            let Some(run) = runs::lock(tx, run)? else { return Ok(()) };
            let is_lost = |changes: &task_changes::LockedChanges| {
                changes.machine() == machine.as_str() && lost_with_machine(changes.state())
            };
            if task_changes::of_task(tx, owner, task)?.is_some_and(|changes| is_lost(&changes)) {
                task_changes::settle(tx, owner, task, ChangesState::Lost, None)?;
                task_changes::touch(tx, &run, task)?;
                notify_run(tx, run.id, run.owner, run.now);
            }
            Ok::<_, StoreError>(())
        })
        .await?;
    }
    Ok(())
}
