//! What is due: leases that ran out, attempts whose time is up, pauses that are over. Any replica does it, one run at a
//! time, and leaves alone what another one is at.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::Nullable;
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::RunId;
use ensemble_types::time::Timestamp;

use super::Store;
use super::ending::{EndingAttempt, Results, Runs, end_attempts, let_go};
use super::held::{LockedRun, Which, lock_leases, try_lock_run};
use super::sql::{Sql, Value, sql, two_sqls, values};
use crate::domain::Ending;

/// When there is something to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// The database's clock.
    pub(crate) now: Timestamp,
    pub(crate) next: Option<Timestamp>,
}

/// Runs in one go.
const BATCH: i64 = 64;

impl Store {
    /// The database's time and the next one that something is due at: one statement.
    pub(crate) async fn next_due(&self) -> Result<Due, StoreError> {
        self.db
            .read("look for what is due next", |c| {
                let query: Sql<(Moment, Nullable<Moment>, Nullable<Moment>)> = sql(
                    "SELECT {}, (SELECT MIN(due_at) FROM leases WHERE ended_at IS NULL), \
                     (SELECT MIN(not_before) FROM tasks WHERE not_before IS NOT NULL)",
                    values![Value::Now],
                );
                let (now, lease, pause): (Timestamp, Option<Timestamp>, Option<Timestamp>) =
                    on!(c, |c| query.get_result(c))?;
                Ok(Due { now, next: lease.into_iter().chain(pause).min() })
            })
            .await
    }

    /// Gives every lease a fresh life: nobody could have beaten while nobody listened.
    pub(crate) async fn pardon(&self) -> Result<usize, StoreError> {
        let lease = self.terms.lease;
        self.db
            .write("prolong all leases", move |tx| {
                let update: Sql<()> = sql(
                    "UPDATE leases SET expires_at = {}, due_at = {} WHERE ended_at IS NULL AND due_at < {}",
                    values![lease, lease, lease],
                );
                on!(tx, |c| update.execute(c))
            })
            .await
    }

    /// Runs with something that is due.
    pub(crate) async fn due_runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.db
            .read("look for what is due", |c| {
                let query: Sql<Uid> = sql(
                    "SELECT run_id FROM leases WHERE ended_at IS NULL AND due_at <= {} \
                     UNION SELECT run_id FROM tasks WHERE not_before <= {} LIMIT {}",
                    values![Value::Now, Value::Now, BATCH],
                );
                on!(c, |c| query.load(c))
            })
            .await
    }

    /// Does what is due in a run, unless another replica is at it or somebody changes it just now. Gives how many leases
    /// ran out for which a runner had begun an attempt.
    pub(crate) async fn settle(&self, id: RunId) -> Result<usize, StoreError> {
        let max_losses = self.terms.max_losses;
        self.db
            .write("do what is due in a run", move |tx| {
                let Some(mut run) = try_lock_run(tx, id)? else { return Ok(0) };
                let resumed = resume(tx, &mut run)?;
                let due = lock_leases(tx, &run, Which::Due)?;
                if resumed == 0 && due.is_empty() {
                    return Ok(0);
                }
                let machines: Vec<String> = due.iter().map(|(_, lease)| lease.machine.clone()).collect();
                let now = run.now;
                let ends = due.into_iter().map(|(task, lease)| {
                    let ending = match (lease.beaten_at, lease.timeout_at) {
                        (None, _) => Ending::NeverBegun,
                        (Some(_), Some(timeout)) if timeout <= now => Ending::TimedOut,
                        _ => Ending::MachineLost,
                    };
                    tracing::info!(run.id = %id, task.id = %task.id, lease.id = %lease.id, ?ending, "Ended a lease");
                    EndingAttempt { run: id, task, lease, ending, results: Results::default() }
                });
                let ends: Vec<EndingAttempt> = ends.collect();
                let lost = ends.iter().filter(|end| end.ending == Ending::MachineLost).count();
                let mut runs = Runs::from([(id, run)]);
                if !ends.is_empty() {
                    end_attempts(tx, &mut runs, ends, max_losses)?;
                }
                for run in runs.values_mut() {
                    for machine in &machines {
                        let_go(tx, run, machine)?;
                    }
                    let event = run.counts.event();
                    run.save(tx, event)?;
                }
                Ok(lost)
            })
            .await
    }
}

/// Ends the pauses that are over.
fn resume(tx: &mut Conn, run: &mut LockedRun) -> Result<usize, StoreError> {
    let update: Sql<()> = two_sqls(
        "UPDATE tasks SET not_before = NULL, version = {} WHERE run_id = {} AND not_before <= {}",
        "UPDATE tasks INDEXED BY tasks_paused SET not_before = NULL, version = {} \
         WHERE run_id = {} AND not_before <= {}",
        values![run.version, run.id, Value::Now],
    );
    let resumed = on!(tx, |c| update.execute(c))?;
    run.counts.ready += i32::try_from(resumed).unwrap_or(i32::MAX);
    Ok(resumed)
}

/// How long until a time of the database's clock.
pub(crate) fn until(due: Due, longest: Duration) -> Duration {
    due.next.map_or(longest, |next| next.since(due.now)).min(longest)
}
