//! What requests can wait for. A transaction notifies a topic, and the notification is sent after the commit.

use ensemble_store_kit::Topic;
use ensemble_types::ids::{LeaseId, RunId, UserId};

/// A run or one of its tasks changed.
pub(crate) fn run_changed(run: RunId) -> Topic {
    Topic::new("run", run)
}

/// A run has ended.
pub(crate) fn run_ended(run: RunId) -> Topic {
    Topic::new("ended", run)
}

/// Runs were deleted, and what belongs to them has to be removed.
pub(crate) fn run_deleted() -> Topic {
    Topic::new("purge", "runs")
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
