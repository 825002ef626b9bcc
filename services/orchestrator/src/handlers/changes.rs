//! What tasks changed: the runner sends diffs and the results of orders, the owner reads diffs and gives orders.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use bytes::Bytes;
use ensemble_chassis::{Caller, HandlerResult, Json, OptionalJson, Path, Query, State};
use ensemble_types::changes::{ChangesWaitFor, LeaseDiff, LeaseDiffTaken, OrderResult, OrderResultTaken};
use ensemble_types::ids::{LeaseId, OrderId, RunId, TaskId};
use ensemble_types::refs::IdOrRef;
use ensemble_types::runs::Task;
use ensemble_types::signatures::ChangesOrder;
use futures_util::stream;
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};
use utoipa::IntoParams;

use super::leases::{lease_call, own_machine};
use super::token_watch::TokenWatch;
use crate::Orchestrator;
use crate::domain::{ChangesWish, TAKES_WITHIN};
use crate::error::Error;
use crate::operations::topics::run_changed;
use crate::operations::{diffs, refs, task_changes};

const MOST_FILES: usize = 256;
const LONGEST_WAIT_MS: u32 = 60_000;

type TaskPath = (IdOrRef<RunId>, IdOrRef<TaskId>);

/// How long to wait for the machine.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitQuery {
    /// How long the answer may take while the machine carries the order out: 0 to 60,000. The default is 0.
    #[param(maximum = 60_000)]
    wait_ms: Option<u32>,
}

pub(crate) async fn apply(
    service: State<Orchestrator>,
    caller: Caller,
    Path(task): Path<TaskPath>,
    Query(query): Query<WaitQuery>,
    OptionalJson(body): OptionalJson<ChangesOrder>,
) -> HandlerResult<Json<Task>> {
    order(service, caller, task, query, (ChangesWish::Apply, body)).await
}

pub(crate) async fn discard(
    service: State<Orchestrator>,
    caller: Caller,
    Path(task): Path<TaskPath>,
    Query(query): Query<WaitQuery>,
    OptionalJson(body): OptionalJson<ChangesOrder>,
) -> HandlerResult<Json<Task>> {
    order(service, caller, task, query, (ChangesWish::Discard, body)).await
}

async fn order(
    service: State<Orchestrator>,
    caller: Caller,
    (run, task): TaskPath,
    query: WaitQuery,
    (wish, body): (ChangesWish, ChangesOrder),
) -> HandlerResult<Json<Task>> {
    let wait_ms = query.wait_ms.unwrap_or(0);
    if wait_ms > LONGEST_WAIT_MS {
        return Err(Error::InvalidField("?waitMs", "must be 0 to 60,000").into());
    }
    let deadline = Instant::now() + Duration::from_millis(wait_ms.into());
    let run = refs::run(&service.db, caller.user, run).await?;
    let task = refs::task(&service.db, caller.user, task).await?;
    let mut changes = service.db.notifier().subscribe(run_changed(run));
    let mut token = TokenWatch::new(&service, caller.clone());
    let mut found = task_changes::ask(&service.db, (caller.user, run, task), wish, body).await?;
    loop {
        // An offline machine carries nothing out before the deadline.
        let is_open = found
            .changes
            .as_ref()
            .is_some_and(|changes| changes.state.is_ordered() && changes.waiting_for != Some(ChangesWaitFor::Machine));
        if !is_open || Instant::now() >= deadline || service.drain.is_closing() {
            return Ok(Json(found));
        }
        tokio::select! {
            () = changes.changed() => {}
            () = token.needs_check(&service) => {}
            () = service.drain.closing() => {}
            () = sleep_until(deadline) => {}
            // Until then it is not known whether the machine takes the order.
            () = sleep(TAKES_WITHIN) => {}
        }
        token.check(&service)?;
        found = task_changes::read(&service.db, caller.user, run, task).await?;
    }
}

pub(crate) async fn read_diff(
    service: State<Orchestrator>,
    caller: Caller,
    Path((run, task)): Path<TaskPath>,
) -> HandlerResult<HttpResponse> {
    let run = refs::run(&service.db, caller.user, run).await?;
    let task = refs::task(&service.db, caller.user, task).await?;
    diffs::find(&service.db, caller.user, run, task).await?;
    let parts = stream::try_unfold(None::<(String, i32)>, move |after| {
        let (db, owner) = (service.db.clone(), caller.user);
        async move {
            let next = diffs::next(&db, owner, task, after).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(next.map(|(path, piece, data)| (Bytes::from(data), Some((path, piece)))))
        }
    });
    let mut response = HttpResponse::Ok();
    response
        .insert_header((CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header((HeaderName::from_static("x-content-type-options"), "nosniff"))
        .insert_header((CACHE_CONTROL, "no-store"));
    Ok(response.streaming(parts))
}

pub(crate) async fn put_diff(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<LeaseId>,
    Json(body): Json<LeaseDiff>,
) -> HandlerResult<Json<LeaseDiffTaken>> {
    let call = lease_call(&caller, id, body.fence)?;
    let path = body.path.map(|path| path.into_string()).unwrap_or_default();
    if path.contains('\0') || body.data.contains('\0') {
        return Err(Error::InvalidField("/data", "must not contain U+0000").into());
    }
    let data = body.data.into_string().into();
    let (quota, reports) = (&service.run_bytes, &service.lease_reports);
    let truncated = diffs::put(&service.db, quota, reports, call, path, data).await?;
    Ok(Json(LeaseDiffTaken { truncated }))
}

pub(crate) async fn order_result(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<OrderId>,
    Json(body): Json<OrderResult>,
) -> HandlerResult<Json<OrderResultTaken>> {
    if body.files.len() > MOST_FILES {
        return Err(Error::InvalidField("/files", "must be at most 256").into());
    }
    let machine = own_machine(&caller)?;
    let files: Vec<String> = body.files.into_iter().map(|file| file.into_string()).collect();
    let result = (files, body.reason.map(|reason| reason.into_string()));
    let state = task_changes::report(&service.db, caller.user, machine, id, body.outcome, result).await?;
    Ok(Json(OrderResultTaken { state }))
}
