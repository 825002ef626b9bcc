//! What a runner says of an attempt that it holds: that it goes on, and how it ended.

use diesel::prelude::*;
use diesel::sql_types::Bool;
use ensemble_store_kit::types::Moment;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::{LeaseId, MachineId, UserId};
use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::{TaskError, TaskStatus, Usage};
use ensemble_types::time::Timestamp;

use super::ending::{Finished, Results, end_attempt, transition};
use super::held::{Hold, task_status};
use super::sql::{Sql, Value, sql, two_sqls, values};
use super::{Store, Terms};
use crate::domain::{Ending, RunEvent, TaskEvent};
use crate::error::Error;

/// Who speaks of which lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseCall {
    pub(crate) lease: LeaseId,
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) fence: i64,
}

/// What a runner hears on its heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) expires_at: Timestamp,
    pub(crate) cancel_requested: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) status: FinishStatus,
    pub(crate) error: Option<TaskError>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) output_summary: Option<String>,
    pub(crate) provider_session_id: Option<String>,
    pub(crate) usage: Option<Usage>,
}

impl Store {
    /// Prolongs a lease. One statement for an attempt that is known to run; the first beat, and one that comes late,
    /// change the task.
    pub(crate) async fn beat(&self, call: LeaseCall) -> Result<Beat, Error> {
        let terms = self.terms;
        self.db
            .write("prolong a lease", move |tx| {
                let renew: Sql<(Moment, Bool)> = two_sqls(
                    "UPDATE leases SET expires_at = CASE WHEN cancel_requested THEN expires_at ELSE {} END, \
                     due_at = CASE WHEN cancel_requested THEN due_at ELSE LEAST({}, timeout_at) END \
                     WHERE id = {} AND owner_id = {} AND machine_id = {} AND attempt = {} AND ended_at IS NULL \
                     AND beaten_at IS NOT NULL RETURNING expires_at, cancel_requested",
                    "UPDATE leases SET expires_at = CASE WHEN cancel_requested THEN expires_at ELSE {} END, \
                     due_at = CASE WHEN cancel_requested THEN due_at ELSE MIN({}, timeout_at) END \
                     WHERE id = {} AND owner_id = {} AND machine_id = {} AND attempt = {} AND ended_at IS NULL \
                     AND beaten_at IS NOT NULL RETURNING expires_at, cancel_requested",
                    values![terms.lease, terms.lease, call.lease, call.owner, call.machine.as_str(), call.fence],
                );
                let renewed: Option<(Timestamp, bool)> = on!(tx, |c| renew.get_result(c).optional())?;
                if let Some((expires_at, cancel_requested)) = renewed {
                    return Ok(Beat { expires_at, cancel_requested });
                }
                let hold = begin(tx, &call, &terms)?;
                Ok(Beat { expires_at: hold.lease.expires_at, cancel_requested: hold.lease.cancel_requested })
            })
            .await
    }

    /// Ends an attempt as its runner says. The same report again gets the same answer.
    pub(crate) async fn finish(&self, call: LeaseCall, report: Report) -> Result<Finished, Error> {
        let terms = self.terms;
        self.db
            .write("finish an attempt", move |tx| {
                let mut hold = lock(tx, &call)?;
                if let Some(outcome) = &hold.lease.outcome {
                    return Ok(Finished { status: task_status(outcome, tx.operation())?, pause: None });
                }
                take_up(tx, &mut hold, &terms)?;
                let Report { status, error, exit_code, output_summary, provider_session_id, usage } = report.clone();
                let ending = Ending::Reported(status, error);
                let results = Results { exit_code, output_summary, provider_session_id, usage };
                let Hold { run, task, lease } = &mut hold;
                let finished = end_attempt(tx, run, task, lease, ending, results, terms.max_losses)?;
                let event = run.counts.event();
                run.save(tx, event)?;
                Ok(finished)
            })
            .await
    }
}

/// The lease with its task and run, locked, when it is the newest of its task or was ended by a report.
pub(super) fn lock(tx: &mut Conn, call: &LeaseCall) -> Result<Hold, Error> {
    let hold = Hold::lock(tx, call.lease, call.owner, &call.machine)?.ok_or(Error::NotFound)?;
    if i64::from(hold.lease.attempt) != call.fence {
        return Err(Error::LeaseLost);
    }
    Ok(hold)
}

/// Makes the task running, if it is not known to be, and the lease live on.
pub(super) fn begin(tx: &mut Conn, call: &LeaseCall, terms: &Terms) -> Result<Hold, Error> {
    let mut hold = lock(tx, call)?;
    if hold.lease.outcome.is_some() {
        return Err(Error::LeaseLost);
    }
    let before = hold.task.status;
    take_up(tx, &mut hold, terms)?;
    let Hold { run, task, lease } = &mut hold;
    task.status = transition(tx, before, TaskEvent::Begun)?;
    let timeout = std::time::Duration::from_millis(u64::try_from(task.timeout_ms).unwrap_or(0));
    let timeout_at = lease.timeout_at.unwrap_or_else(|| run.now.plus(timeout).plus(terms.timeout_grace));
    if !lease.cancel_requested {
        lease.expires_at = run.now.plus(terms.lease);
    }
    let update: Sql<()> = sql(
        "UPDATE leases SET beaten_at = {}, expires_at = {}, timeout_at = {}, due_at = {} WHERE id = {}",
        values![
            lease.beaten_at.unwrap_or(run.now),
            lease.expires_at,
            timeout_at,
            lease.expires_at.min(timeout_at),
            lease.id
        ],
    );
    on!(tx, |c| update.execute(c))?;
    if before != TaskStatus::Running {
        let update: Sql<()> = sql(
            "UPDATE tasks SET status = 'running', version = {}, started_at = COALESCE(started_at, {}) WHERE id = {}",
            values![run.version, run.now, task.id],
        );
        on!(tx, |c| update.execute(c))?;
        run.save(tx, RunEvent::StillOpen)?;
    }
    Ok(hold)
}

/// Makes sure that the lease may still speak for its task. One that ran out takes its task up again, unless somebody else
/// was given it or it has ended; then nothing is changed.
fn take_up(tx: &mut Conn, hold: &mut Hold, _terms: &Terms) -> Result<(), Error> {
    let Hold { run, task, lease } = hold;
    let newest = lease.attempt == task.attempt && !task.status.is_terminal();
    let reason = lease.end_reason.as_deref();
    match reason {
        None if newest => return Ok(()),
        Some("expired" | "unbeaten") if newest && task.status == TaskStatus::Queued => {}
        _ => return Err(Error::LeaseLost),
    }
    // It was no loss after all.
    task.losses -= i32::from(reason == Some("expired"));
    let update: Sql<()> = sql(
        "UPDATE leases SET ended_at = NULL, end_reason = NULL, beaten_at = COALESCE(beaten_at, {}), \
         timeout_at = NULL WHERE id = {}",
        values![Value::Now, lease.id],
    );
    on!(tx, |c| update.execute(c))?;
    let update: Sql<()> = sql(
        "UPDATE tasks SET status = 'running', version = {}, losses = {} WHERE id = {}",
        values![run.version, task.losses, task.id],
    );
    on!(tx, |c| update.execute(c))?;
    lease.end_reason = None;
    lease.timeout_at = None;
    task.status = transition(tx, task.status, TaskEvent::Begun)?;
    run.counts.queued -= 1;
    run.counts.ready -= 1;
    run.counts.running += 1;
    run.save(tx, RunEvent::Dispatched).map_err(StoreError::into)
}
