//! The runner's side: take work, hold it, report it.

use std::time::Duration;

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::ids::{LeaseId, MachineId};
use ensemble_types::leases::{
    LeaseBeat, LeaseFinish, LeaseFinished, LeaseHeartbeat, LeaseOutput, LeaseOutputTaken, LeaseRequest, Leases,
};
use ensemble_types::runs::TaskError;
use tokio::time::{Instant, sleep_until};

use super::watch::Watch;
use crate::Orchestrator;
use crate::error::Error;
use crate::store::{LeaseCall, Report, Wanted, work, work_for};

pub(crate) async fn take(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Json(body): Json<LeaseRequest>,
) -> HandlerResult<Json<Leases>> {
    let wanted = wanted(&caller, &body)?;
    let deadline = Instant::now() + Duration::from_millis(body.wait_ms);
    let wakes = orchestrator.store.notifier();
    let mut any = wakes.subscribe(work(wanted.owner));
    let mut own = wakes.subscribe(work_for(wanted.owner, wanted.machine.as_str()));
    let mut watch = Watch::new(&orchestrator, caller);
    orchestrator.roster.seen(&wanted, Duration::from_millis(body.wait_ms)).await.map_err(Error::from)?;
    let _waits = orchestrator.metrics.waits();
    let mut woken: Option<Instant> = None;
    loop {
        let asked = Instant::now();
        let leases = orchestrator.grant(&wanted).await?;
        orchestrator.metrics.granted(leases.len(), asked.elapsed(), woken.map(|woken| woken.elapsed()));
        if !leases.is_empty() || body.wait_ms == 0 || orchestrator.drain.is_closing() {
            return Ok(Json(Leases { leases }));
        }
        tokio::select! {
            () = any.changed() => {}
            () = own.changed() => {}
            () = watch.alarm(&orchestrator) => {}
            () = orchestrator.drain.closing() => {}
            // Whatever came until now was told; to ask once more would be one more question for each runner that waits.
            () = sleep_until(deadline) => return Ok(Json(Leases { leases })),
        }
        woken = Some(Instant::now());
        watch.check(&orchestrator)?;
    }
}

fn wanted(caller: &Caller, body: &LeaseRequest) -> Result<Wanted, Error> {
    let machine = own_machine(caller)?;
    if machine != body.machine_id {
        return Err(Error::OtherMachine);
    }
    let mut providers = body.providers.clone();
    providers.sort_unstable();
    providers.dedup();
    if providers.is_empty() {
        return Err(Error::BadField("/providers", "must name at least one provider"));
    }
    if !(1..=64).contains(&body.capacity) {
        return Err(Error::BadField("/capacity", "must be 1 to 64"));
    }
    if body.wait_ms > 60_000 {
        return Err(Error::BadField("/waitMs", "must be 0 to 60,000"));
    }
    Ok(Wanted { owner: caller.user, machine, providers, capacity: body.capacity })
}

fn own_machine(caller: &Caller) -> Result<MachineId, Error> {
    caller.machine.clone().ok_or(Error::OtherMachine)
}

fn call(caller: &Caller, lease: LeaseId, fence: i64) -> Result<LeaseCall, Error> {
    Ok(LeaseCall { lease, owner: caller.user, machine: own_machine(caller)?, fence })
}

pub(crate) async fn beat(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseHeartbeat>,
) -> HandlerResult<Json<LeaseBeat>> {
    let beat = orchestrator.store.beat(call(&caller, id, body.fence)?).await?;
    orchestrator.nudge.within(orchestrator.store.terms().lease);
    Ok(Json(LeaseBeat { expires_at: beat.expires_at, cancel_requested: beat.cancel_requested }))
}

pub(crate) async fn output(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseOutput>,
) -> HandlerResult<Json<LeaseOutputTaken>> {
    let call = call(&caller, id, body.fence)?;
    let taken = orchestrator.store.append(call, body.offset, body.data.into_string().into()).await?;
    Ok(Json(LeaseOutputTaken { next_offset: taken.next_offset, truncated: taken.truncated }))
}

pub(crate) async fn finish(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseFinish>,
) -> HandlerResult<Json<LeaseFinished>> {
    if body.usage.and_then(|usage| usage.cost_usd).is_some_and(|cost| cost < 0.0) {
        return Err(Error::BadField("/usage/costUsd", "must not be negative").into());
    }
    let report = Report {
        status: body.status,
        error: body.error.map(TaskError::from),
        exit_code: body.exit_code,
        output_summary: body.output_summary.map(|summary| summary.into_string()),
        provider_session_id: body.provider_session_id.map(|id| id.into_string()),
        usage: body.usage,
    };
    let finished = orchestrator.store.finish(call(&caller, id, body.fence)?, report).await?;
    orchestrator.metrics.finished(body.status);
    if let Some(pause) = finished.pause {
        orchestrator.nudge.within(pause);
    }
    Ok(Json(LeaseFinished { task_status: finished.status }))
}
