//! The runner's side: request leases, send heartbeats and output, and report the end of an attempt.

use std::time::Duration;

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::ids::{LeaseId, MachineId};
use ensemble_types::leases::{
    FinishStatus, LeaseBeat, LeaseFinish, LeaseFinished, LeaseHeartbeat, LeaseOutput, LeaseOutputTaken, LeaseRequest,
    Leases,
};
use ensemble_types::runs::TaskError;
use tokio::time::{Instant, sleep_until};

use super::token_watch::TokenWatch;
use crate::Orchestrator;
use crate::domain::{LeaseCall, RunnerRequest};
use crate::error::Error;
use crate::operations::topics::{work, work_for};
use crate::operations::{AttemptResults, EndReport, RunningReport, Wake, leases, outputs, task_changes};

/// A machine that falls asleep still has its request open. Its leases run out 20 s after that at the earliest, so none of
/// them is granted to it again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
const MOST_DENIALS: usize = 32;
const MOST_ORDERS: usize = 64;
const MOST_PROVIDERS: usize = 16;
const MOST_FILES: usize = 256;
const MOST_NOTES: usize = 4;
/// The paths of the files that a report names, in bytes: a page of a run has 100 tasks.
const MOST_PATH_BYTES: usize = 32 << 10;

pub(crate) async fn request(
    service: State<Orchestrator>,
    caller: Caller,
    Json(body): Json<LeaseRequest>,
) -> HandlerResult<Json<Leases>> {
    let request = runner_request(&caller, &body)?;
    let wait = Duration::from_millis(body.wait_ms).min(LONGEST_WAIT);
    let deadline = Instant::now() + wait;
    let notifier = service.db.notifier();
    let mut any_machine = notifier.subscribe(work(request.owner));
    let mut this_machine = notifier.subscribe(work_for(request.owner, request.machine.as_str()));
    let mut token = TokenWatch::new(&service, caller);
    service.active_runners.requested(&request, wait).await.map_err(Error::from)?;
    task_changes::take(&service.db, &request).await.map_err(Error::from)?;
    let _waiting = service.metrics.runner_waiting();
    let (mut notified, mut looked_at): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        // What is delivered from now on notifies this request again.
        let asked = Instant::now();
        let (account_at, machine_at) = (any_machine.delivered_at(), this_machine.delivered_at());
        let woken = looked_at.map(|looked_at| Wake { looked_at, account_at, machine_at });
        let found = grant(&service, &request, woken).await?;
        looked_at = Some(asked);
        service.metrics.granted(found.leases.len(), asked.elapsed(), notified.map(|notified| notified.elapsed()));
        let is_empty = found.leases.is_empty() && found.orders.is_empty();
        if !is_empty || body.wait_ms == 0 || service.drain.is_closing() {
            return Ok(Json(found));
        }
        tokio::select! {
            () = any_machine.changed() => {}
            () = this_machine.changed() => {}
            () = token.needs_check(&service) => {}
            () = service.drain.closing() => {}
            // Every change until now has notified this request, so there is no need to look again.
            () = sleep_until(deadline) => return Ok(Json(found)),
        }
        notified = Some(Instant::now());
        token.check(&service)?;
    }
}

async fn grant(service: &Orchestrator, request: &RunnerRequest, woken: Option<Wake>) -> Result<Leases, Error> {
    let (limits, lock) = (&service.limits, &service.per_account_lock);
    let (machines, quota, reports) = (&service.machines, &service.run_bytes, &service.lease_reports);
    let granted = leases::grant(&service.db, machines, limits, quota, lock, reports, (request, woken)).await?;
    if !granted.leases.is_empty() {
        service.alarm.due_after(limits.first_heartbeat);
    }
    Ok(granted)
}

fn runner_request(caller: &Caller, body: &LeaseRequest) -> Result<RunnerRequest, Error> {
    let machine = own_machine(caller)?;
    if machine != body.machine_id {
        return Err(Error::WrongMachine);
    }
    if body.providers.len() > MOST_PROVIDERS {
        return Err(Error::InvalidField("/providers", "must be at most 16"));
    }
    let mut providers = body.providers.clone();
    providers.sort_unstable();
    providers.dedup();
    if body.capacity > 64 {
        return Err(Error::InvalidField("/capacity", "must be 0 to 64"));
    }
    if body.slots.is_some_and(|slots| !(1..=64).contains(&slots)) {
        return Err(Error::InvalidField("/slots", "must be 1 to 64"));
    }
    if body.wait_ms > 60_000 {
        return Err(Error::InvalidField("/waitMs", "must be 0 to 60,000"));
    }
    if body.taken_orders.len() > MOST_ORDERS {
        return Err(Error::InvalidField("/takenOrders", "must be at most 64"));
    }
    // Orders to cancel have the ids of leases, and are not repeated after a heartbeat.
    let taken_orders = body.taken_orders.iter().filter_map(|id| id.parse().ok()).collect();
    let (capacity, slots) = (body.capacity, body.slots);
    Ok(RunnerRequest { owner: caller.user, machine, providers, capacity, slots, taken_orders })
}

pub(super) fn own_machine(caller: &Caller) -> Result<MachineId, Error> {
    caller.machine.clone().ok_or(Error::WrongMachine)
}

pub(super) fn lease_call(caller: &Caller, lease: LeaseId, fence: i64) -> Result<LeaseCall, Error> {
    Ok(LeaseCall { lease, owner: caller.user, machine: own_machine(caller)?, fence })
}

pub(crate) async fn heartbeat(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseHeartbeat>,
) -> HandlerResult<Json<LeaseBeat>> {
    let call = lease_call(&caller, id, body.fence)?;
    let session = body.provider_session_id.map(|id| id.into_string());
    let beat = RunningReport { waiting_for: body.waiting_for, session: body.session_id };
    let renewed = leases::heartbeat(&service.db, &service.limits, &service.lease_reports, call, session, beat).await?;
    service.alarm.due_after(service.limits.lease);
    Ok(Json(LeaseBeat { expires_at: renewed.expires_at, cancel_requested: renewed.cancel_requested }))
}

pub(crate) async fn output(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseOutput>,
) -> HandlerResult<Json<LeaseOutputTaken>> {
    let call = lease_call(&caller, id, body.fence)?;
    let (limits, quota, reports) = (&service.limits, &service.run_bytes, &service.lease_reports);
    let data = body.data.into_string().into();
    let appended = outputs::append(&service.db, limits, quota, reports, call, body.offset, data).await?;
    Ok(Json(LeaseOutputTaken { next_offset: appended.next_offset, truncated: appended.truncated }))
}

pub(crate) async fn finish(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseFinish>,
) -> HandlerResult<Json<LeaseFinished>> {
    if body.usage.and_then(|usage| usage.cost_usd).is_some_and(|cost| cost < 0.0) {
        return Err(Error::InvalidField("/usage/costUsd", "must not be negative").into());
    }
    let listed = body.permission_denials.as_ref().map_or(0, |denials| denials.denials.len());
    if listed > MOST_DENIALS {
        return Err(Error::InvalidField("/permissionDenials/denials", "must be at most 32").into());
    }
    if body.status == FinishStatus::Refused && body.error.is_none() {
        return Err(Error::InvalidField("/error", "must say why the machine cannot run the task").into());
    }
    if body.status != FinishStatus::Quota && body.resume_at.is_some() {
        return Err(Error::InvalidField("/resumeAt", "belongs to the status quota").into());
    }
    if let Some(changes) = &body.changes {
        let paths: usize = changes.files.iter().map(|file| file.path.len()).sum();
        if changes.notes.len() > MOST_NOTES {
            return Err(Error::InvalidField("/changes/notes", "must be at most 4").into());
        }
        if changes.files.len() > MOST_FILES || paths > MOST_PATH_BYTES {
            let bound = "must be at most 256, with paths of at most 32,768 bytes in all";
            return Err(Error::InvalidField("/changes/files", bound).into());
        }
    }
    let results = AttemptResults {
        exit_code: body.exit_code,
        output_summary: body.output_summary.map(|summary| summary.into_string()),
        provider_session_id: body.provider_session_id.map(|id| id.into_string()),
        usage: body.usage,
        permission: body.permission,
        denials: body.permission_denials,
        changes: body.changes,
        session: body.session_id,
    };
    let report =
        EndReport { status: body.status, error: body.error.map(TaskError::from), resume_at: body.resume_at, results };
    let call = lease_call(&caller, id, body.fence)?;
    let finished = leases::finish(&service.lease_reports, call, report).await?;
    service.metrics.finished(body.status);
    if let Some(pause) = finished.pause {
        service.alarm.due_after(pause);
    }
    Ok(Json(LeaseFinished { task_status: finished.status }))
}
