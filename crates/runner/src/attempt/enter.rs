//! The beginning and the end of an attempt's work in its directory: it waits for its turn there, and says what it changed.

use std::time::Duration;

use ensemble_host::drain::Phase;
use ensemble_process::Directory;
use ensemble_process::disk::on_disk;
use ensemble_types::changes::{LeaseWaitsFor, ReportedChanges};
use ensemble_types::leases::Lease;

use super::Context;
use super::heartbeat::{Heartbeat, LeaseState};
use super::slot::Slot;
use crate::outcome::Outcome;
use crate::spool::Record;
use crate::workplace::{Entry, Place, Turn};

/// Attempts that wait, in addition to those that run. With more, a waiting attempt keeps its slot.
const MOST_WAITING: usize = 64;

/// How long the comparison may take that finds what an attempt changed.
const LONGEST_COMPARISON: Duration = Duration::from_secs(120);

/// Why an attempt does not begin.
pub(super) enum NotEntered {
    /// The lease is lost.
    Lost,
    Ended(Outcome),
}

/// Waits for the attempt's turn in its directory, and prepares its place.
pub(super) async fn enter(
    context: &Context,
    lease: &Lease,
    directory: Directory,
    (heartbeat, slot): (&Heartbeat, &mut Slot),
) -> Result<Place, NotEntered> {
    let workplaces = &context.workplaces;
    let is_own = directory.root == context.spool.workspaces();
    let entry = workplaces.entry(lease, directory, is_own).await;
    let turn = match workplaces.try_turn(&entry) {
        Some(turn) => turn,
        None => wait(context, lease, &entry, (heartbeat, slot)).await?,
    };
    tokio::select! {
        place = workplaces.enter(lease, entry, turn) => place.map_err(NotEntered::Ended),
        () = heartbeat.reached(LeaseState::Lost) => Err(NotEntered::Lost),
        () = heartbeat.reached(LeaseState::CancelRequested) => Err(NotEntered::Ended(Outcome::cancelled())),
    }
}

/// While it waits, the attempt takes no slot and its timeout stands still.
async fn wait(
    context: &Context,
    lease: &Lease,
    entry: &Entry,
    (heartbeat, slot): (&Heartbeat, &mut Slot),
) -> Result<Option<Turn>, NotEntered> {
    tracing::info!(lease.id = %lease.id, task.id = %lease.task_id, "Waiting for another task that works in the directory");
    heartbeat.set_waiting(Some(LeaseWaitsFor::Directory));
    if context.workplaces.waiting() < MOST_WAITING {
        slot.give_back();
    }
    let turn = async {
        let _waiting = context.workplaces.count_waiting();
        let turn = context.workplaces.turn(entry).await;
        slot.take_again().await;
        turn
    };
    let turn = tokio::select! {
        turn = turn => turn,
        () = heartbeat.reached(LeaseState::Lost) => return Err(NotEntered::Lost),
        () = heartbeat.reached(LeaseState::CancelRequested) => return Err(NotEntered::Ended(Outcome::cancelled())),
        () = context.drain.reached(Phase::Draining) => return Err(NotEntered::Ended(Outcome::handed_back())),
    };
    heartbeat.set_waiting(None);
    Ok(turn)
}

/// Finds out what the attempt changed, and saves its diff next to its report.
pub(super) async fn save_changes(context: &Context, place: &Place, record: &Record) -> Option<ReportedChanges> {
    let found = tokio::time::timeout(LONGEST_COMPARISON, context.workplaces.changes(place)).await;
    let mut changed = match found {
        Ok(changed) => changed?,
        Err(_) => context.workplaces.unknown(place, "to find out takes too long"),
    };
    if !changed.diff.is_empty() {
        let (record, parts) = (record.clone(), std::mem::take(&mut changed.diff));
        let lease = record.lease();
        if let Err(error) = on_disk(move || record.save_diff(&parts)).await {
            tracing::error!(lease.id = %lease, "Cannot save what an attempt changed: {error}");
            changed.report.partial = true;
        }
    }
    Some(changed.report)
}
