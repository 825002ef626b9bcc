//! What the owners of runs do: submit, read, cancel, retry and delete them.

use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::idempotency::{self, IdempotencyOutcome, IdempotencyRequest};
use ensemble_store_kit::{Conn, Db, Quota, Reserved, StoreError};
use ensemble_types::ids::{MachineId, RunId, UserId};
use ensemble_types::runs::{ChangedTask, Run, Task};
use ensemble_types::time::Timestamp;

use super::changes::save_run;
use super::machines::find_gone;
use super::purge::delete_run;
use super::quota;
use super::runners::check_offered;
use super::topics::{notify_run, work, work_for};
use super::unsettled::{cancel_queued, requeue_ended, settle};
use crate::clients::Machines;
use crate::domain::{ATTEMPT_BYTES, RunDraft, RunEvent};
use crate::error::Error;
use crate::store::new_run::{self, Chosen};
use crate::store::{deleted_machines, leases, run_views, runs, tasks};

pub(crate) use crate::store::run_views::{Filter, RunView};
pub(crate) use crate::store::runs::Unfinished;

/// Tasks of a run that are read at once. With their prompts and outputs, the tasks of a large run are more than the service
/// should hold in memory. Positions have no gaps, so a page is a range of positions.
pub(crate) const PAGE: u32 = 100;

/// How often ids are drawn for a run whose client has chosen none, and whose refs are taken.
const DRAWS: u32 = 3;

/// A run with the first page of its tasks. A later page can show later changes.
pub(crate) type FirstPage = (RunView, Vec<Task>);

/// A submitted run.
pub(crate) struct Submitted {
    pub(crate) run: FirstPage,
    /// `false` when an earlier request with the same idempotency key created it.
    pub(crate) is_new: bool,
}

/// A run that is submitted.
#[derive(Clone)]
pub(crate) struct NewRun {
    pub(crate) owner: UserId,
    pub(crate) draft: RunDraft,
    pub(crate) traceparent: Option<String>,
    pub(crate) key: Option<IdempotencyRequest>,
    /// SHA-256 of the request's body.
    pub(crate) request_hash: [u8; 32],
}

/// Creates a run, unless an earlier request with the same idempotency key, or with the same ids and body, has created it.
pub(crate) async fn submit(
    db: &Db,
    machines: &Machines,
    max_unfinished: i64,
    quota: &Quota,
    new: NewRun,
) -> Result<Submitted, Error> {
    let pinned = new.draft.machines();
    // The earlier request must be found before the machines are checked, because they can be deleted by now.
    if !pinned.is_empty()
        && let Some(id) = find_submitted(db, &new).await?
    {
        return Ok(Submitted { run: read(db, new.owner, id).await?, is_new: false });
    }
    let named = pinned.iter().map(|(_, machine)| machine.clone()).collect();
    let gone = find_gone(db, machines, new.owner, named).await?;
    for (task, machine) in pinned {
        if gone.contains(&machine) || !machines.has(new.owner, &machine).await? {
            return Err(Error::MachineNotFound { task, machine: machine.to_string() });
        }
    }
    let (owner, chosen, request_hash) = (new.owner, new.draft.id, new.request_hash);
    let mut new = Arc::new(new);
    for left in (0..DRAWS).rev() {
        match create(db, max_unfinished, quota.clone(), new.clone()).await {
            // A request at the same time, another run, or a task with one of these ids or refs.
            Err(Error::Store(StoreError::Duplicate { .. })) => {}
            created => return created,
        }
        if let Some(id) = chosen
            && is_made(db, (id, owner), request_hash).await?
        {
            return Ok(Submitted { run: read(db, owner, id).await?, is_new: false });
        }
        if left == 0 || !Arc::make_mut(&mut new).draft.draw_again() {
            break;
        }
    }
    Err(Error::IdTaken)
}

async fn is_made(db: &Db, (id, owner): (RunId, UserId), request_hash: [u8; 32]) -> Result<bool, Error> {
    let chosen = db.read("look for a chosen id", move |c| new_run::chosen(c, id, owner, &request_hash)).await?;
    Ok(chosen == Chosen::Made)
}

async fn find_submitted(db: &Db, new: &NewRun) -> Result<Option<RunId>, Error> {
    if let Some(id) = new.draft.id {
        let is_made = is_made(db, (id, new.owner), new.request_hash).await?;
        return Ok(Some(id).filter(|_| is_made));
    }
    let Some(request) = new.key.clone() else { return Ok(None) };
    let resource = db.read("look for an earlier request", move |c| new_run::submitted_before(c, &request)).await?;
    Ok(resource.and_then(|id| id.parse().ok()))
}

async fn create(db: &Db, max_unfinished: i64, quota: Quota, new: Arc<NewRun>) -> Result<Submitted, Error> {
    db.write("create a run", move |tx| {
        let NewRun { owner, draft, traceparent, key, request_hash } = &*new;
        let (owner, id) = (*owner, draft.id.unwrap_or_else(RunId::generate));
        // A key does not bring back a run that was deleted.
        let chosen = match draft.id {
            Some(id) => new_run::chosen(tx, id, owner, request_hash)?,
            None => Chosen::New,
        };
        if chosen == Chosen::Taken {
            return Err(Error::IdTaken);
        }
        if let Some(key) = key {
            match idempotency::claim(tx, key, &id.to_string())? {
                IdempotencyOutcome::New => {}
                IdempotencyOutcome::Mismatch => return Err(Error::IdempotencyMismatch),
                IdempotencyOutcome::Replay { resource } => {
                    let id = resource.parse().map_err(|error| StoreError::bad_row(tx.operation(), error))?;
                    return Ok(Submitted { run: first_page(tx, owner, id)?, is_new: false });
                }
            }
        }
        if chosen == Chosen::Made {
            return Ok(Submitted { run: first_page(tx, owner, id)?, is_new: false });
        }
        let tasks = i64::try_from(draft.tasks.len()).unwrap_or(i64::MAX);
        // A large run takes longer to write than a caller usually waits.
        tx.extend_deadline(Duration::from_millis(tasks.unsigned_abs()));
        check_unfinished(tx, owner, tasks, max_unfinished)?;
        check_offered(tx, owner, draft)?;
        let reserved = reserve(tx, &quota, owner, draft.stored_bytes())?;
        tx.hold(reserved);
        let hash = draft.id.map(|_| request_hash);
        let created_at = new_run::insert(tx, (id, owner), draft, traceparent.as_deref(), hash)?;
        check_machines(tx, owner, draft)?;
        notify_run(tx, id, owner, created_at);
        tx.notify(work(owner));
        Ok(Submitted { run: first_page(tx, owner, id)?, is_new: true })
    })
    .await
}

/// Refuses runs that would take more than the account may store.
pub(super) fn reserve(tx: &mut Conn, quota: &Quota, owner: UserId, more: i64) -> Result<Reserved, Error> {
    Ok(quota.reserve(owner, more, || runs::stored_bytes(tx, owner))??)
}

/// Refuses a run for a machine that was deleted since it was looked up.
fn check_machines(tx: &mut Conn, owner: UserId, draft: &RunDraft) -> Result<(), Error> {
    let (tasks, named): (Vec<usize>, Vec<MachineId>) = draft.machines().into_iter().unzip();
    if named.is_empty() {
        return Ok(());
    }
    deleted_machines::lock_shared(tx, owner)?;
    let gone = deleted_machines::gone(tx, owner, &named)?;
    match tasks.into_iter().zip(named).find(|(_, machine)| gone.iter().any(|gone| gone == machine.as_str())) {
        Some((task, machine)) => Err(Error::MachineNotFound { task, machine: machine.to_string() }),
        None => Ok(()),
    }
}

/// Runs with up to this many tasks are checked without a lock while the account is far from its limit.
const SMALL_RUN: i64 = 100;

/// Refuses more unfinished tasks than an account may have. Near the limit, one transaction of the account decides at a time.
/// Below half of it, no lock is needed: the small runs of all concurrent transactions fit into the other half.
pub(super) fn check_unfinished(tx: &mut Conn, owner: UserId, more: i64, limit: i64) -> Result<(), Error> {
    if more <= SMALL_RUN && runs::unfinished(tx, owner)?.saturating_add(more) <= limit / 2 {
        return Ok(());
    }
    runs::lock_unfinished(tx, owner)?;
    let open = runs::unfinished(tx, owner)?;
    if open.saturating_add(more) > limit { Err(Error::TooManyTasks { open, limit }) } else { Ok(()) }
}

/// Cancels the queued tasks, those of a large run one batch after the other, and asks the runners of the others to stop. A run that has
/// ended stays as it is.
pub(crate) async fn cancel(db: &Db, owner: UserId, id: RunId, reason: Option<String>) -> Result<FirstPage, Error> {
    db.write("cancel a run", move |tx| {
        let mut run = runs::lock(tx, id)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
        if run.status.is_terminal() || run.is_cancelling() {
            return first_page(tx, owner, id);
        }
        for machine in leases::request_cancel(tx, id)? {
            tx.notify(work_for(owner, &machine));
        }
        run.cancel_reason.clone_from(&reason);
        // A run without running tasks ends now and is never seen in the status `canceling`.
        run.apply_event(RunEvent::CancelRequested, tx.operation())?;
        cancel_queued(tx, &mut run)?;
        let event = run.counts.event();
        save_run(tx, &mut run, event)?;
        first_page(tx, owner, id)
    })
    .await
}

/// Queues all tasks that ended without completing. Those that need a deleted machine fail again at once.
pub(crate) async fn retry(
    db: &Db,
    machines: &Machines,
    max_unfinished: i64,
    quota: &Quota,
    owner: UserId,
    id: RunId,
) -> Result<FirstPage, Error> {
    let pins = db.read("read the machines of a run", move |c| tasks::pins(c, owner, id)).await?;
    find_gone(db, machines, owner, pins).await?;
    loop {
        if let Some(page) = retry_settled(db, max_unfinished, quota.clone(), owner, id).await? {
            return Ok(page);
        }
        settle(db, id).await?;
    }
}

/// `None` when something of an earlier change has to be done first.
async fn retry_settled(
    db: &Db,
    max_unfinished: i64,
    quota: Quota,
    owner: UserId,
    id: RunId,
) -> Result<Option<FirstPage>, Error> {
    db.write("retry a run", move |tx| {
        let mut run = runs::lock(tx, id)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
        if run.is_cancelling() {
            return Err(Error::Cancelling);
        }
        if run.unsettled {
            return Ok(None);
        }
        let more = run.counts.failed + run.counts.cancelled;
        if more == 0 {
            if !quota::lift(tx, &run)? {
                return Err(Error::NothingToRetry);
            }
            let event = run.counts.event();
            save_run(tx, &mut run, event)?;
            return first_page(tx, owner, id).map(Some);
        }
        check_unfinished(tx, owner, more.into(), max_unfinished)?;
        // Given back at once: the attempts are counted when they begin.
        drop(reserve(tx, &quota, owner, i64::from(more).saturating_mul(ATTEMPT_BYTES))?);
        quota::lift(tx, &run)?;
        run.cancel_reason = None;
        run.apply_event(RunEvent::Retried, tx.operation())?;
        requeue_ended(tx, &mut run)?;
        let event = run.counts.event();
        save_run(tx, &mut run, event)?;
        first_page(tx, owner, id).map(Some)
    })
    .await
}

/// Deletes a run that has ended. The purge removes its tasks and their output afterwards.
pub(crate) async fn delete(db: &Db, quota: &Quota, owner: UserId, id: RunId) -> Result<(), Error> {
    db.write("delete a run", move |tx| {
        let run = runs::lock(tx, id)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
        if !run.status.is_terminal() {
            return Err(Error::NotEnded);
        }
        Ok(delete_run(tx, &run)?)
    })
    .await?;
    // What the run took is free now, and not when it is purged.
    quota.forget(owner);
    Ok(())
}

/// A part of the list of an account's runs, newest first, without their tasks.
pub(crate) struct ListedRuns {
    pub(crate) runs: Vec<Run>,
    /// The position of the next page, if there is one.
    pub(crate) next: Option<(Timestamp, RunId)>,
}

/// Longer pages are made one after the other for each caller.
const SHORT: usize = 128 << 10;
/// Bytes of a run in a list apart from its texts.
const SMALL_FIELDS: usize = 512;

impl ListedRuns {
    /// About the length of the page in bytes, when that is long.
    pub(crate) fn long(&self) -> Option<usize> {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let sizes = self.runs.iter().map(|run| SMALL_FIELDS + length(&run.title) + length(&run.cancel_reason));
        Some(sizes.sum()).filter(|bytes| *bytes > SHORT)
    }
}

/// A page of an account's runs.
pub(crate) async fn list(
    db: &Db,
    owner: UserId,
    filter: Filter,
    after: Option<(Timestamp, RunId)>,
    limit: u32,
) -> Result<ListedRuns, Error> {
    let mut runs =
        db.read("list runs", move |c| run_views::list(c, owner, filter, after, i64::from(limit) + 1)).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = runs.len() > limit;
    runs.truncate(limit);
    let next = runs.last().filter(|_| has_more).map(|run| (run.created_at, run.id));
    Ok(ListedRuns { runs, next })
}

/// A run with the first page of its tasks.
pub(crate) async fn read(db: &Db, owner: UserId, id: RunId) -> Result<FirstPage, Error> {
    db.read("read a run", move |c| first_page(c, owner, id)).await
}

/// For operations that have changed the run: they read it in the same transaction, so that a committed change cannot end in
/// an error of a later read.
fn first_page(c: &mut Conn, owner: UserId, id: RunId) -> Result<FirstPage, Error> {
    let view = run_views::run(c, owner, id)?.ok_or(Error::NotFound)?;
    let tasks = page(c, &view, 0, PAGE)?;
    Ok((view, tasks))
}

fn page(c: &mut Conn, view: &RunView, from: u32, count: u32) -> Result<Vec<Task>, StoreError> {
    let position = |at: u32| i32::try_from(at).unwrap_or(i32::MAX);
    run_views::tasks(c, view, position(from), position(from.saturating_add(count)))
}

/// This many of a run's tasks, from this position on.
pub(crate) async fn next_page(db: &Db, view: Arc<RunView>, from: u32, count: u32) -> Result<Vec<Task>, StoreError> {
    db.read("read more of a run", move |c| page(c, &view, from, count)).await
}

/// A run without its tasks.
pub(crate) async fn read_summary(db: &Db, owner: UserId, id: RunId) -> Result<Run, Error> {
    let view = db.read("read a run's state", move |c| run_views::run(c, owner, id)).await?;
    view.map(|view| view.run).ok_or(Error::NotFound)
}

/// A run, with the tasks that changed after some version.
pub(crate) struct RunChanges {
    pub(crate) run: Run,
    pub(crate) tasks: Vec<ChangedTask>,
    /// More tasks have changed than were read.
    pub(crate) has_more: bool,
}

/// The tasks of a run that changed after a version, at most `limit`.
pub(crate) async fn changes(db: &Db, owner: UserId, id: RunId, since: i64, limit: usize) -> Result<RunChanges, Error> {
    db.read("read the changes of a run", move |c| {
        let view = run_views::run(c, owner, id)?.ok_or(Error::NotFound)?;
        if view.run.version <= since {
            return Ok(RunChanges { run: view.run, tasks: Vec::new(), has_more: false });
        }
        let rows = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut tasks = run_views::changed_tasks(c, &view, since, rows)?;
        let has_more = tasks.len() > limit;
        tasks.truncate(limit);
        Ok(RunChanges { run: view.run, tasks, has_more })
    })
    .await
}

/// The present versions of runs, to find changes whose notifications were missed.
pub(crate) async fn versions(db: &Db, ids: Vec<RunId>) -> Result<Vec<(RunId, i64)>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    db.read("read the versions of runs", move |c| runs::versions(c, &ids)).await
}

/// For each of these accounts with ready tasks: when one of the runs concerned last changed.
pub(crate) async fn ready_work(db: &Db, owners: Vec<UserId>) -> Result<Vec<(UserId, Timestamp)>, StoreError> {
    if owners.is_empty() {
        return Ok(Vec::new());
    }
    db.read("read the accounts with ready tasks", move |c| runs::ready_work(c, &owners)).await
}

/// Counts what is not finished, over all accounts.
pub(crate) async fn count_unfinished(db: &Db) -> Result<Unfinished, StoreError> {
    db.read("count the unfinished runs", runs::count_unfinished).await
}
