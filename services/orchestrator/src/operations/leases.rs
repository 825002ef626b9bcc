//! What runners do with leases: request them, keep them, and report how the attempt ended.

use ensemble_store_kit::{Db, Quota, StoreError};
use ensemble_types::leases::{FinishStatus, Leases};
use ensemble_types::runs::TaskError;
use tokio::time::Instant;

use super::PerAccountLock;
use super::attempts::Finished;
use super::empty_looks::Wake;
use super::grants::{self, Granted};
use super::lease_reports::{EndReport, LeaseReports, Renewed, RunningReport};
use super::machines::was_registered_again;
use crate::clients::Machines;
use crate::config::Limits;
use crate::domain::{ATTEMPT_BYTES, LeaseCall, RunnerRequest};
use crate::error::Error;
use crate::store::grants::candidates;
use crate::store::tasks::AttemptResults;
use crate::store::{leases, runs, task_changes, task_sessions, tasks};

/// How many times a request that was late looks again at once. After that it waits to be notified.
const MOST_LATE: usize = 3;

/// Leases tasks to a runner, at most as many as it wants. A task whose prompt would be too large with the outputs filled in
/// fails here. A machine that was deleted gets nothing. A request that was woken looks only if none like it has looked since.
pub(crate) async fn grant(
    db: &Db,
    machines: &Machines,
    limits: &Limits,
    quota: &Quota,
    lock: &PerAccountLock,
    reports: &LeaseReports,
    (request, mut woken): (&RunnerRequest, Option<Wake>),
) -> Result<Leases, Error> {
    let mut late = 0;
    loop {
        let granted = grant_once(db, limits, quota, lock, request.clone(), woken.take()).await?;
        if granted.machine_is_gone {
            if was_registered_again(db, machines, request.owner, &request.machine).await? {
                continue;
            }
            return Ok(Leases { leases: Vec::new(), orders: granted.orders });
        }
        // It has looked at as many runs as it wants tasks. There may be others, and no notification of them comes any more.
        if granted.is_late && late < MOST_LATE {
            late += 1;
            continue;
        }
        for (lease, fence) in &granted.too_large {
            let (owner, machine) = (request.owner, request.machine.clone());
            reports.ended(LeaseCall { lease: *lease, owner, machine, fence: *fence }, prompt_too_large()).await?;
        }
        if !granted.leases.is_empty() || granted.too_large.is_empty() {
            return Ok(Leases { leases: granted.leases, orders: granted.orders });
        }
    }
}

async fn grant_once(
    db: &Db,
    limits: &Limits,
    quota: &Quota,
    lock: &PerAccountLock,
    request: RunnerRequest,
    woken: Option<Wake>,
) -> Result<Granted, StoreError> {
    // A new run wakes all runners of the account, and they compete for the same rows. Without this lock each of them would
    // hold a database connection while it waits for a row.
    let mut empty_looks = lock.lock(request.owner).await?;
    if woken.is_some_and(|wake| empty_looks.cover(&request, wake)) {
        return Ok(Granted::default());
    }
    let began = Instant::now();
    // Most requests find nothing, so they look for tasks without a transaction.
    let wanted = request.clone();
    let (found, orders, is_any_ready) = db
        .read("look for work", move |c| {
            let found = if wanted.wants_tasks() { candidates(c, &wanted)? } else { Vec::new() };
            let mut orders = leases::cancel_orders(c, wanted.owner, &wanted.machine)?;
            orders.extend(task_changes::open_orders(c, &wanted)?);
            // Others were notified as well. A request that looks when it comes has no others with it.
            let is_any_ready = !found.is_empty() || woken.is_none() || runs::is_any_ready(c, wanted.owner)?;
            Ok::<_, StoreError>((found, orders, is_any_ready))
        })
        .await?;
    if found.is_empty() {
        if orders.is_empty() {
            empty_looks.add(request, began, is_any_ready);
        }
        return Ok(Granted { orders, ..Granted::default() });
    }
    let (limits, quota) = (*limits, quota.clone());
    db.write("grant leases", move |tx| {
        let granted = grants::grant(tx, &request, &found, &limits)?;
        let attempts = i64::try_from(granted.leases.len() + granted.too_large.len()).unwrap_or(i64::MAX);
        tx.hold(quota.reserve_anyway(request.owner, attempts.saturating_mul(ATTEMPT_BYTES)));
        Ok(Granted { orders: orders.clone(), ..granted })
    })
    .await
}

fn prompt_too_large() -> EndReport {
    let error = TaskError {
        code: "PROMPT_TOO_LARGE".to_owned(),
        message: "With the outputs of other tasks filled in, the prompt would be larger than 1 MiB.".to_owned(),
    };
    EndReport { status: FinishStatus::Failed, error: Some(error), resume_at: None, results: AttemptResults::default() }
}

/// Extends a lease. The first heartbeat starts the attempt.
pub(crate) async fn heartbeat(
    db: &Db,
    limits: &Limits,
    reports: &LeaseReports,
    call: LeaseCall,
    session: Option<String>,
    beat: RunningReport,
) -> Result<Renewed, Error> {
    let (running, life) = (call.clone(), limits.lease);
    let renewed = db
        .write("extend a lease", move |tx| {
            let Some(lease) = leases::lock_running(tx, &running)? else { return Ok(None) };
            if lease.waiting_for() != beat.waiting_for {
                return Ok(None);
            }
            if beat.session.is_some() && !task_sessions::is_known(tx, running.owner, lease.task)? {
                return Ok(None);
            }
            if let Some(session) = &session {
                tasks::set_session(tx, running.owner, lease.task, session)?;
            }
            // A runner that was asked to stop has until the end of its lease.
            if lease.cancel_requested {
                if !lease.cancel_received {
                    leases::receive_cancel(tx, running.lease)?;
                }
                return Ok(Some(Renewed { expires_at: lease.expires_at, cancel_requested: true }));
            }
            let expires_at = lease.now.plus(life);
            // The timeout stands still while the attempt waits.
            let due_at = if beat.waiting_for.is_some() { expires_at } else { expires_at.min(lease.timeout_at) };
            leases::extend(tx, running.lease, expires_at, due_at)?;
            Ok::<_, StoreError>(Some(Renewed { expires_at, cancel_requested: false }))
        })
        .await?;
    match renewed {
        Some(renewed) => Ok(renewed),
        None => reports.running(call, beat).await,
    }
}

/// Ends an attempt as its runner reports it. A repeated report gets the same reply.
pub(crate) async fn finish(reports: &LeaseReports, call: LeaseCall, report: EndReport) -> Result<Finished, Error> {
    reports.ended(call, report).await
}
