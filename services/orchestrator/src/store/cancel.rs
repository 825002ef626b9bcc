//! What the owner of a run decides: that it ends, and that what failed is tried again.

use diesel::prelude::*;
use diesel::sql_types::Integer;
use ensemble_store_kit::on;
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::runs::{RunStatus, TaskStatus};

use super::Store;
use super::create::check_unfinished;
use super::ending::transition;
use super::held::lock_run;
use super::sql::{Sql, sql, values};
use super::whole::{Opened, opened};
use crate::domain::{RunEvent, TaskEvent};
use crate::error::Error;

impl Store {
    /// Cancels what is queued and asks the runners of the rest to stop. A run that has ended stays as it is.
    pub(crate) async fn cancel(&self, owner: UserId, id: RunId, reason: Option<String>) -> Result<Opened, Error> {
        self.db
            .write("cancel a run", move |tx| {
                let mut run = lock_run(tx, id)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
                if run.status.is_terminal() || run.is_cancelling() {
                    return opened(tx, owner, id);
                }
                let cancelled = transition(tx, TaskStatus::Queued, TaskEvent::Cancelled)?;
                let tasks: Sql<()> = sql(
                    "UPDATE tasks SET status = {}, version = {}, finished_at = {}, not_before = NULL \
                     WHERE run_id = {} AND status = 'queued'",
                    values![cancelled.as_str(), run.version, run.now, id],
                );
                let count = on!(tx, |c| tasks.execute(c))?;
                let leases: Sql<()> = sql(
                    "UPDATE leases SET cancel_requested = TRUE WHERE run_id = {} AND ended_at IS NULL",
                    values![id],
                );
                on!(tx, |c| leases.execute(c))?;
                let why: Sql<()> = sql("UPDATE runs SET cancel_reason = {} WHERE id = {}", values![reason.clone(), id]);
                on!(tx, |c| why.execute(c))?;
                run.counts.cancelled += i32::try_from(count).unwrap_or(i32::MAX);
                (run.counts.queued, run.counts.ready) = (0, 0);
                // What cannot wait for a runner has ended already: then the run passes through canceling unseen.
                run.status = crate::domain::run_transition(run.status, RunEvent::CancelAsked).unwrap_or(run.status);
                let event = run.counts.event();
                run.save(tx, event)?;
                opened(tx, owner, id)
            })
            .await
    }

    /// New attempts for all that failed, was cancelled or was given up.
    pub(crate) async fn retry(&self, owner: UserId, id: RunId) -> Result<Opened, Error> {
        let limit = self.terms.max_unfinished;
        self.db
            .write("retry a run", move |tx| {
                let mut run = lock_run(tx, id)?.filter(|run| run.owner == owner).ok_or(Error::NotFound)?;
                if run.status == RunStatus::Canceling {
                    return Err(Error::Cancelling);
                }
                let more = run.counts.failed + run.counts.cancelled;
                if more == 0 {
                    return Err(Error::NothingToRetry);
                }
                check_unfinished(tx, owner, more.into(), limit)?;
                let queued = transition(tx, TaskStatus::Failed, TaskEvent::Retried)?;
                // A dependency that is tried again itself is open again; one statement sees them all as they were.
                let update: Sql<Integer> = sql(
                    "UPDATE tasks SET status = {}, version = {}, failures = 0, losses = 0, error_code = NULL, \
                     error_message = NULL, output_summary = NULL, exit_code = NULL, input_tokens = NULL, \
                     output_tokens = NULL, cost_usd = NULL, started_at = NULL, finished_at = NULL, open_deps = \
                     (SELECT count(*) FROM dependencies d JOIN tasks u ON u.id = d.depends_on \
                      WHERE d.task_id = tasks.id AND u.status <> 'completed') \
                     WHERE run_id = {} AND status IN ('failed', 'cancelled', 'dependency_failed') RETURNING open_deps",
                    values![queued.as_str(), run.version, id],
                );
                let open: Vec<i32> = on!(tx, |c| update.load(c))?;
                let again: Sql<()> = sql("UPDATE runs SET cancel_reason = NULL WHERE id = {}", values![id]);
                on!(tx, |c| again.execute(c))?;
                run.counts.queued += i32::try_from(open.len()).unwrap_or(i32::MAX);
                run.counts.ready += i32::try_from(open.iter().filter(|open| **open == 0).count()).unwrap_or(0);
                (run.counts.failed, run.counts.cancelled) = (0, 0);
                run.save(tx, RunEvent::Retried)?;
                opened(tx, owner, id)
            })
            .await
    }
}
