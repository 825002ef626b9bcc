//! Runs, as their owners submit, watch and end them.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::process::telemetry;
use ensemble_chassis::{Caller, HandlerResult, IdempotentJson, Json, OptionalJson, Path, Query, State};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::ids::RunId;
use ensemble_types::page::Limit;
use ensemble_types::runs::{CancelRun, CreateRun, Pend, Pended, RunPage, RunStatus, WaitFor};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use super::watch::Watch;
use super::whole;
use crate::Orchestrator;
use crate::domain::RunDraft;
use crate::error::Error;
use crate::store::{After, Filter, Seen, changed, ended};

/// Tasks in one answer of a pend.
pub(super) const CHANGED_TASKS: usize = 500;

/// Which runs.
#[derive(Deserialize, IntoParams)]
pub(crate) struct RunQuery {
    /// A run status, `active` or `terminal`.
    #[param(pattern = "^(queued|running|canceling|completed|failed|cancelled|active|terminal)$")]
    status: Option<String>,
    /// How many, 20 unless said otherwise.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<20, 100>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// How to wait, when there is no body.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendQuery {
    /// The run's version, as the last answer gave it.
    #[param(pattern = "^[0-9]{1,18}$")]
    cursor: Option<String>,
    /// `change` or `terminal`.
    #[param(inline)]
    wait_for: Option<WaitFor>,
    /// 0 to 120,000; 30,000 when absent.
    #[param(maximum = 120_000)]
    timeout_ms: Option<u32>,
}

pub(crate) async fn create(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    request: IdempotentJson<CreateRun>,
) -> HandlerResult<HttpResponse> {
    let draft = RunDraft::new(request.body).map_err(Error::from)?;
    let wish = request.key.map(|key| IdempotencyRequest {
        scope: caller.user.to_string(),
        route: "POST /v1/orchestrator/runs",
        key: key.key,
        body_hash: key.body_hash,
    });
    let machines = draft.machines();
    if let Some(wish) = wish.clone().filter(|_| !machines.is_empty())
        && let Some(id) = orchestrator.store.made_before(wish).await?
    {
        let made = orchestrator.store.whole(caller.user, id).await?;
        return Ok(whole::answer(&orchestrator, made, StatusCode::OK)?);
    }
    for (task, machine) in machines {
        if !orchestrator.machines.has(caller.user, &machine).await.map_err(Error::from)? {
            return Err(Error::MachineNotFound { task, machine: machine.to_string() }.into());
        }
    }
    // Attempts belong to the trace of this request; without a collector, to the caller's.
    let theirs = || {
        let value = http.headers().get(telemetry::TRACEPARENT).and_then(|value| value.to_str().ok());
        value.filter(|text| is_traceparent(text)).map(str::to_owned)
    };
    let traceparent = telemetry::traceparent().or_else(theirs);
    let submitted = orchestrator.store.create(caller.user, draft, traceparent, wish).await?;
    let status = if submitted.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(whole::answer(&orchestrator, submitted.run, status)?)
}

/// Version, trace, span and flags in hexadecimal (W3C Trace Context, version 00).
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]) && parts.iter().all(hex)
}

pub(crate) async fn list(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Query(query): Query<RunQuery>,
) -> HandlerResult<Json<RunPage>> {
    let filter = filter(query.status.as_deref())?;
    let after = query.cursor.as_deref().map(After::decode).transpose()?;
    let listed = orchestrator.store.list(caller.user, filter, after, query.limit.get()).await?;
    Ok(Json(RunPage { runs: listed.runs, next_cursor: listed.next.map(|after| after.encode()) }))
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
        Some(name) => {
            named(name).map(Filter::Only).ok_or(Error::BadField("?status", "must be a run status, active or terminal"))
        }
    }
}

pub(crate) async fn read(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<RunId>,
) -> HandlerResult<HttpResponse> {
    let run = orchestrator.store.whole(caller.user, id).await?;
    Ok(whole::answer(&orchestrator, run, StatusCode::OK)?)
}

pub(crate) async fn cancel(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<RunId>,
    OptionalJson(body): OptionalJson<CancelRun>,
) -> HandlerResult<HttpResponse> {
    let run = orchestrator.store.cancel(caller.user, id, body.reason.map(|reason| reason.into_string())).await?;
    Ok(whole::answer(&orchestrator, run, StatusCode::OK)?)
}

pub(crate) async fn retry(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<RunId>,
) -> HandlerResult<HttpResponse> {
    let run = orchestrator.store.retry(caller.user, id).await?;
    Ok(whole::answer(&orchestrator, run, StatusCode::OK)?)
}

pub(crate) async fn pend(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    Path(id): Path<RunId>,
    Query(query): Query<PendQuery>,
    OptionalJson(body): OptionalJson<Pend>,
) -> HandlerResult<Json<Pended>> {
    // Each is looked at, also one that the other overrides.
    let cursors = [&body.cursor, &query.cursor].map(|text| text.as_deref().map(version).transpose());
    let [from_body, from_query] = cursors;
    let cursor = from_body?.or(from_query?);
    let wait_for = body.wait_for.or(query.wait_for).unwrap_or_default();
    let timeout_ms = body.timeout_ms.or(query.timeout_ms).unwrap_or(30_000);
    if [body.timeout_ms, query.timeout_ms].into_iter().flatten().any(|ms| ms > 120_000) {
        return Err(Error::BadField("/timeoutMs", "must be 0 to 120,000").into());
    }
    let deadline = Instant::now() + Duration::from_millis(timeout_ms.into());
    let topic = if wait_for == WaitFor::Terminal { ended(id) } else { changed(id) };
    let mut news = orchestrator.store.notifier().subscribe(topic);
    let mut watch = Watch::new(&orchestrator, caller.clone());
    let mut since = cursor;
    loop {
        let seen = match since {
            Some(since) => orchestrator.store.seen(caller.user, id, since, CHANGED_TASKS).await?,
            None => {
                let run = orchestrator.store.bare_run(caller.user, id).await?;
                Seen { run, changed: Vec::new(), more: false }
            }
        };
        let base = *since.get_or_insert(seen.run.version);
        let terminal = seen.run.status.is_terminal();
        let moved = seen.run.version != base;
        let done = terminal || (wait_for == WaitFor::Change && moved);
        if done || Instant::now() >= deadline || orchestrator.drain.is_closing() {
            return Ok(Json(pended(seen, moved)));
        }
        tokio::select! {
            () = news.changed() => {}
            () = watch.alarm(&orchestrator) => {}
            () = orchestrator.drain.closing() => {}
            () = sleep_until(deadline) => {}
        }
        watch.check(&orchestrator)?;
    }
}

pub(super) fn pended(seen: Seen, changed: bool) -> Pended {
    Pended {
        id: seen.run.id,
        status: seen.run.status,
        terminal: seen.run.status.is_terminal(),
        changed,
        cursor: seen.run.version.to_string(),
        changed_tasks: seen.changed,
        more: seen.more,
        run: seen.run,
    }
}

/// A run's version, as an earlier answer gave it.
pub(super) fn version(text: &str) -> Result<i64, Error> {
    let digits = !text.is_empty() && text.len() <= 19 && text.bytes().all(|b| b.is_ascii_digit());
    let version = if digits { text.parse().ok() } else { None };
    version.ok_or(Error::InvalidCursor(ensemble_store_kit::cursor::InvalidCursor))
}
