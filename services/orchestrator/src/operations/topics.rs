//! What requests can wait for. A transaction notifies a topic, and the notification is sent after the commit.

use ensemble_store_kit::{Conn, Topic, hints};
use ensemble_types::hints::{AccountHint, HintKind};
use ensemble_types::ids::{LeaseId, RunId, UserId};
use ensemble_types::time::Timestamp;

/// A run or one of its tasks changed.
pub(crate) fn run_changed(run: RunId) -> Topic {
    Topic::new("run", run)
}

/// Notifies the requests that wait for a run and, with a hint, the readers of its owner's events.
pub(crate) fn notify_run(tx: &mut Conn, run: RunId, owner: UserId, now: Timestamp) {
    tx.notify(run_changed(run));
    let (kind, id) = (HintKind::Run, run.to_string());
    tx.notify(hints::topic(&AccountHint { user: owner, machine: None, kind, id, revision: now.micros() }));
}

/// A run has ended.
pub(crate) fn run_ended(run: RunId) -> Topic {
    Topic::new("ended", run)
}

/// Runs were deleted, and what belongs to them has to be removed.
pub(crate) fn run_deleted() -> Topic {
    Topic::new("purge", "runs")
}

/// Something is left to do in a run.
pub(crate) fn run_unsettled() -> Topic {
    Topic::new("unsettled", "runs")
}

/// A task is ready that any machine of the account can run.
pub(crate) fn work(owner: UserId) -> Topic {
    Topic::new("work", owner)
}

/// A task is ready that only this machine can run.
pub(crate) fn work_for(owner: UserId, machine: &str) -> Topic {
    Topic::new("work", format_args!("{owner}/{machine}"))
}

/// The output of an attempt has grown, or the attempt has ended.
pub(crate) fn output(lease: LeaseId) -> Topic {
    Topic::new("output", lease)
}
