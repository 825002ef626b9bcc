//! What the service does: each operation loads, applies the rules of `domain/` and stores, in one transaction.

pub(crate) mod attempts;
pub(crate) mod briefs;
pub(crate) mod diffs;
pub(crate) mod follow_ups;
pub(crate) mod leases;
pub(crate) mod machines;
pub(crate) mod outputs;
pub(crate) mod purge;
pub(crate) mod pushes;
pub(crate) mod quota;
pub(crate) mod refs;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod task_changes;
pub(crate) mod timers;
pub(crate) mod topics;
pub(crate) mod unsettled;
pub(crate) mod usage;

mod changes;
mod costs;
mod dependents;
mod empty_looks;
mod grants;
mod lease_reports;
mod per_account_lock;

pub(crate) use empty_looks::Wake;
pub(crate) use lease_reports::{EndReport, LeaseReports, RunningReport};
pub(crate) use per_account_lock::PerAccountLock;

pub(crate) use crate::store::tasks::AttemptResults;
