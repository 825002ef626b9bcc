//! Removes the tasks and the output of deleted runs, in small transactions that do not delay others: a run can have 10,000
//! tasks and gigabytes of output.

use ensemble_store_kit::{Conn, Db, StoreError, Subscription};
use ensemble_types::ids::RunId;

use super::topics::run_deleted;
use crate::store::purge;

/// Tasks, and attempts of them, that one transaction removes at most.
const ROWS: i64 = 50;
/// Pieces of output, each of at most 1 MiB, that one transaction removes at most.
const PIECES: usize = 100;

/// Completes when runs were deleted.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(run_deleted())
}

/// Removes some of what belongs to a deleted run. False when nothing is left, or other replicas are working on what is.
pub(crate) async fn step(db: &Db) -> Result<bool, StoreError> {
    db.write("purge deleted runs", |tx| {
        let Some(run) = purge::next_deleted(tx)? else { return Ok(false) };
        remove_some(tx, run)?;
        Ok(true)
    })
    .await
}

fn remove_some(tx: &mut Conn, run: RunId) -> Result<(), StoreError> {
    let tasks = purge::some_tasks(tx, run, ROWS)?;
    if tasks.is_empty() {
        return purge::forget_run(tx, run);
    }
    let attempts = purge::some_attempts(tx, &tasks, ROWS)?;
    if attempts.is_empty() {
        return purge::remove_tasks(tx, &tasks);
    }
    let mut left = PIECES;
    for attempt in attempts {
        left = left.saturating_sub(purge::remove_output(tx, attempt, left)?);
        if left == 0 {
            break;
        }
    }
    Ok(())
}
