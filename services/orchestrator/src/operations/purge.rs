//! Removes the tasks and the output of deleted runs, in small transactions that do not delay others: a run can have 10,000
//! tasks and gigabytes of output.

use std::time::Duration;

use ensemble_store_kit::{Conn, Db, Quota, StoreError, Subscription};
use ensemble_types::ids::{RunId, UserId};

use super::topics::{notify_run, run_deleted, run_ended};
use crate::store::runs::LockedRun;
use crate::store::{purge, runs};

/// Tasks, and attempts of them, that one transaction removes at most.
const ROWS: i64 = 50;
/// Pieces of output, each of at most 1 MiB, that one transaction removes at most.
const PIECES: usize = 100;
/// Old runs that one transaction deletes at most.
const OLD_RUNS: i64 = 20;

/// Ids of deleted runs that one transaction forgets at most.
const FORGOTTEN: i64 = 1_000;

/// Completes when runs were deleted.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(run_deleted())
}

/// What a step has removed.
pub(crate) enum Purged {
    Run,
    Tasks(usize),
    Output(usize),
}

/// Removes some of what belongs to a deleted run. `None` when nothing is left, or other replicas are working on what is.
pub(crate) async fn step(db: &Db) -> Result<Option<Purged>, StoreError> {
    db.write("purge deleted runs", |tx| {
        let Some(run) = purge::next_deleted(tx)? else { return Ok(None) };
        tx.commit_without_waiting()?;
        remove_some(tx, run).map(Some)
    })
    .await
}

/// Deletes some runs that ended longer ago than they are kept. Returns how many.
pub(crate) async fn expire(db: &Db, quota: &Quota, kept: Duration) -> Result<usize, StoreError> {
    let owners = db.write("delete old runs", move |tx| {
        let cutoff = tx.now()?.minus(kept);
        let mut owners = Vec::new();
        for id in purge::ended_before(tx, cutoff, OLD_RUNS)? {
            let Some(run) = runs::lock(tx, id)?.filter(|run| run.status.is_terminal()) else { continue };
            delete_run(tx, &run)?;
            owners.push(run.owner);
        }
        Ok::<_, StoreError>(owners)
    });
    let owners = owners.await?;
    owners.iter().for_each(|owner| quota.forget(*owner));
    Ok(owners.len())
}

/// Forgets some ids of runs that were deleted long ago. Returns how many.
pub(crate) async fn forget_old(db: &Db) -> Result<usize, StoreError> {
    db.write("forget deleted runs", |tx| purge::forget_old(tx, FORGOTTEN)).await
}

/// Deletes a locked run that has ended: all readers are notified, and what belongs to it is purged later.
pub(super) fn delete_run(tx: &mut Conn, run: &LockedRun) -> Result<(), StoreError> {
    purge::delete_run(tx, run)?;
    notify_run(tx, run.id, run.owner, run.now);
    [run_ended(run.id), run_deleted()].into_iter().for_each(|topic| tx.notify(topic));
    Ok(())
}

fn remove_some(tx: &mut Conn, (owner, run): (UserId, RunId)) -> Result<Purged, StoreError> {
    let tasks = purge::some_tasks(tx, (owner, run), ROWS)?;
    if tasks.is_empty() {
        purge::set_purged(tx, (owner, run))?;
        return Ok(Purged::Run);
    }
    let attempts = purge::some_attempts(tx, owner, &tasks, ROWS)?;
    if attempts.is_empty() {
        return purge::remove_tasks(tx, (owner, run), &tasks).map(Purged::Tasks);
    }
    let mut removed = 0;
    for attempt in attempts {
        removed += purge::remove_output(tx, owner, attempt, PIECES.saturating_sub(removed))?;
        if removed >= PIECES {
            break;
        }
    }
    Ok(Purged::Output(removed))
}
