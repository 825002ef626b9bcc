//! Runs, as their owners submit, read, cancel, retry, delete and watch them.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::http::located;
use ensemble_chassis::process::telemetry;
use ensemble_chassis::{
    Caller, HandlerResult, Heavy, IdempotentJson, Json, LargeAnswer, OptionalJson, Path, Query, State,
};
use ensemble_store_kit::cursor::{self, InvalidCursor};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::RunId;
use ensemble_types::page::Limit;
use ensemble_types::refs::IdOrRef;
use ensemble_types::runs::{CancelRun, CreateRun, Pend, Pended, RunPage, RunStatus, WaitFor};
use ensemble_types::time::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use super::run_body::respond;
use super::token_watch::TokenWatch;
use crate::Orchestrator;
use crate::domain::RunDraft;
use crate::error::Error;
use crate::operations::refs;
use crate::operations::runs::{self, Filter, ListedRuns, NewRun, RunChanges};
use crate::operations::topics::{run_changed, run_ended};

/// Tasks in one response of a pend.
pub(super) const CHANGED_TASKS: usize = 500;
/// The name of the list in its cursors.
const LIST: &str = "runs";

/// Which runs.
#[derive(Deserialize, IntoParams)]
pub(crate) struct RunQuery {
    /// A run status, `active` or `terminal`.
    #[param(pattern = "^(queued|running|canceling|completed|failed|cancelled|active|terminal)$")]
    status: Option<String>,
    /// How many. The default is 20.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<20, 100>,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// How to wait, when the request has no body.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendQuery {
    /// The run's version in the last response.
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
    /// `change` or `terminal`.
    #[param(inline)]
    wait_for: Option<WaitFor>,
    /// 0 to 120,000. The default is 30,000.
    #[param(maximum = 120_000)]
    timeout_ms: Option<u32>,
}

pub(crate) async fn create(
    service: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    heavy: Heavy,
    request: IdempotentJson<CreateRun>,
) -> HandlerResult<HttpResponse> {
    let (body, request_hash) = (request.body, request.digest);
    let draft = heavy.run(move || RunDraft::new(body)).await?.map_err(Error::from)?;
    let key = request.key.map(|key| IdempotencyRequest {
        scope: caller.user.to_string(),
        route: "POST /v1/orchestrator/runs",
        key: key.key,
        body_hash: key.body_hash,
    });
    // Attempts belong to the trace of this request. Without a collector, they belong to the caller's trace.
    let of_caller = || {
        let value = http.headers().get(telemetry::TRACEPARENT).and_then(|value| value.to_str().ok());
        value.filter(|text| is_traceparent(text)).map(str::to_owned)
    };
    let traceparent = telemetry::traceparent().or_else(of_caller);
    let new = NewRun { owner: caller.user, draft, traceparent, key, request_hash };
    let (machines, quota) = (&service.machines, &service.run_bytes);
    let submitted = runs::submit(&service.db, machines, service.limits.max_unfinished, quota, new).await?;
    let status = if submitted.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = format!("/v1/orchestrator/runs/{}", submitted.run.0.run.id);
    Ok(located(respond(&service, submitted.run, status)?, &location))
}

/// Version, trace, span and flags in hexadecimal (W3C Trace Context, version 00).
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]) && parts.iter().all(hex)
}

pub(crate) async fn list(
    service: State<Orchestrator>,
    caller: Caller,
    Query(query): Query<RunQuery>,
    large: LargeAnswer,
) -> HandlerResult<Json<RunPage>> {
    let filter = filter(query.status.as_deref())?;
    let after: Option<(i64, RunId)> =
        query.cursor.as_deref().map(|text| cursor::decode(LIST, text)).transpose().map_err(Error::from)?;
    let after = after.map(|(created_at, id)| (Timestamp::from_micros(created_at), id));
    let read = async || runs::list(&service.db, caller.user, filter, after, query.limit.get()).await;
    let short = read().await?;
    let Some(bytes) = short.long() else { return Ok(Json(page(short))) };
    // Short pages do not wait for the caller's long ones. What waits holds nothing that was read.
    drop(short);
    let _turn = large.turn_for(bytes).await?;
    Ok(Json(page(read().await?)))
}

fn page(ListedRuns { runs, next }: ListedRuns) -> RunPage {
    let next_cursor = next.map(|(created_at, id)| cursor::encode(LIST, &(created_at.micros(), id)));
    RunPage { runs, next_cursor }
}

fn filter(status: Option<&str>) -> Result<Filter, Error> {
    use RunStatus as S;
    let named = |name: &str| {
        [S::Queued, S::Running, S::Canceling, S::Completed, S::Failed, S::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == name)
    };
    match status {
        None => Ok(Filter::All),
        Some("active") => Ok(Filter::Active),
        Some("terminal") => Ok(Filter::Terminal),
        Some(name) => named(name)
            .map(Filter::Only)
            .ok_or(Error::InvalidField("?status", "must be a run status, active or terminal")),
    }
}

pub(crate) async fn read(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<IdOrRef<RunId>>,
) -> HandlerResult<HttpResponse> {
    let id = refs::run(&service.db, caller.user, id).await?;
    let run = runs::read(&service.db, caller.user, id).await?;
    Ok(respond(&service, run, StatusCode::OK)?)
}

pub(crate) async fn cancel(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<IdOrRef<RunId>>,
    OptionalJson(body): OptionalJson<CancelRun>,
) -> HandlerResult<HttpResponse> {
    let id = refs::run(&service.db, caller.user, id).await?;
    let reason = body.reason.map(|reason| reason.into_string());
    let run = runs::cancel(&service.db, caller.user, id, reason).await?;
    Ok(respond(&service, run, StatusCode::OK)?)
}

pub(crate) async fn retry(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<IdOrRef<RunId>>,
) -> HandlerResult<HttpResponse> {
    let id = refs::run(&service.db, caller.user, id).await?;
    let (machines, quota) = (&service.machines, &service.run_bytes);
    let run = runs::retry(&service.db, machines, service.limits.max_unfinished, quota, caller.user, id).await?;
    Ok(respond(&service, run, StatusCode::OK)?)
}

pub(crate) async fn remove(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<IdOrRef<RunId>>,
) -> HandlerResult<Json<Deleted>> {
    let id = refs::run(&service.db, caller.user, id).await?;
    runs::delete(&service.db, &service.run_bytes, caller.user, id).await?;
    Ok(Json(Deleted::DONE))
}

pub(crate) async fn pend(
    service: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<IdOrRef<RunId>>,
    Query(query): Query<PendQuery>,
    large: LargeAnswer,
    OptionalJson(body): OptionalJson<Pend>,
) -> HandlerResult<Json<Pended>> {
    let id = refs::run(&service.db, caller.user, id).await?;
    // Both cursors are checked, although the one in the body takes precedence.
    let cursors = [&body.cursor, &query.cursor].map(|text| text.as_deref().map(parse_version).transpose());
    let [from_body, from_query] = cursors;
    let cursor = from_body?.or(from_query?);
    let wait_for = body.wait_for.or(query.wait_for).unwrap_or_default();
    let timeout_ms = body.timeout_ms.or(query.timeout_ms).unwrap_or(30_000);
    if [body.timeout_ms, query.timeout_ms].into_iter().flatten().any(|ms| ms > 120_000) {
        return Err(Error::InvalidField("/timeoutMs", "must be 0 to 120,000").into());
    }
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    let topic = if wait_for == WaitFor::Terminal { run_ended(id) } else { run_changed(id) };
    let mut changes = service.db.notifier().subscribe(topic);
    let mut token = TokenWatch::new(&service, caller.clone());
    let mut since = cursor;
    loop {
        let state = match since {
            Some(since) => {
                let _turn = large.turn().await?;
                runs::changes(&service.db, caller.user, id, since, CHANGED_TASKS).await?
            }
            None => {
                let run = runs::read_summary(&service.db, caller.user, id).await?;
                RunChanges { run, tasks: Vec::new(), has_more: false }
            }
        };
        let base = *since.get_or_insert(state.run.version);
        let terminal = state.run.status.is_terminal();
        let changed = state.run.version != base;
        let done = terminal || (wait_for == WaitFor::Change && changed);
        if done || Instant::now() >= deadline || service.drain.is_closing() {
            return Ok(Json(pended(state, changed)));
        }
        tokio::select! {
            () = changes.changed() => {}
            () = token.needs_check(&service) => {}
            () = service.drain.closing() => {}
            () = sleep_until(deadline) => {}
        }
        token.check(&service)?;
    }
}

pub(super) fn pended(changes: RunChanges, changed: bool) -> Pended {
    Pended {
        id: changes.run.id,
        reference: changes.run.reference,
        status: changes.run.status,
        terminal: changes.run.status.is_terminal(),
        changed,
        cursor: changes.run.version.to_string(),
        changed_tasks: changes.tasks,
        more: changes.has_more,
        run: changes.run,
    }
}

/// The version of a run, as an earlier response had it.
pub(super) fn parse_version(text: &str) -> Result<i64, Error> {
    let digits = !text.is_empty() && text.len() <= 19 && text.bytes().all(|b| b.is_ascii_digit());
    let version = if digits { text.parse().ok() } else { None };
    version.ok_or(Error::InvalidCursor(InvalidCursor))
}
