//! The queries, and nothing else. What a change means is decided by `domain/`, and what happens in one transaction by
//! `operations/`.
//!
//! Every function that changes a task expects that the transaction holds the lock of its run. A transaction that locks
//! several runs locks them in the order of their ids. So the changes of one run happen one after the other, and no two
//! transactions deadlock. A heartbeat and a piece of output of an attempt that has started lock their lease only. The lock
//! of an account's machines comes after the locks of runs (see `deleted_machines.rs`).

/// Loads rows and locks them until the transaction ends. SQLite has no row locks, because it has one writer at a time.
macro_rules! load_locked {
    ($tx:expr, $query:expr, $columns:expr) => {
        ensemble_store_kit::on!(
            $tx,
            Pg | c | $query.select($columns).for_update().load(c),
            Sqlite | c | $query.select($columns).load(c)
        )
    };
}

pub(crate) mod costs;
pub(crate) mod deleted_machines;
pub(crate) mod diffs;
pub(crate) mod ended_tasks;
pub(crate) mod follow_ups;
pub(crate) mod grants;
pub(crate) mod holds;
pub(crate) mod leases;
pub(crate) mod new_run;
pub(crate) mod outputs;
pub(crate) mod permissions;
pub(crate) mod purge;
pub(crate) mod pushes;
pub(crate) mod refs;
pub(crate) mod refusals;
mod run_rows;
pub(crate) mod run_views;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod signatures;
pub(crate) mod task_changes;
pub(crate) mod task_sessions;
pub(crate) mod tasks;
pub(crate) mod usage;

mod columns;
mod schema;
