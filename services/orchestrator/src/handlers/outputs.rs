//! The output of a task's attempts: whole, in part, or live.

use std::convert::Infallible;

use actix_web::http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, HeaderName, RANGE};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, http::StatusCode};
use bytes::Bytes;
use ensemble_chassis::{Caller, HandlerResult, Path, Query, State};
use ensemble_store_kit::Subscription;
use ensemble_types::ids::{LeaseId, RunId, TaskId, UserId};
use ensemble_types::refs::IdOrRef;
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::token_watch::TokenWatch;
use crate::Orchestrator;
use crate::domain::byte_range;
use crate::error::Error;
use crate::operations::outputs::{self, Attempt};
use crate::operations::refs;
use crate::operations::topics;

/// The last byte in the range of a response that still grows (RFC 8673, section 2.2): the largest integer of JSON.
const VERY_LARGE: u64 = (1 << 53) - 1;

/// Which output.
#[derive(Clone, Debug, Deserialize, IntoParams)]
pub(crate) struct OutputQuery {
    /// The number of the attempt. The latest one when absent.
    attempt: Option<u32>,
    /// Also sends new output as it arrives, until the attempt has ended.
    follow: Option<bool>,
}

pub(crate) async fn read(
    service: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    Path((run, task)): Path<(IdOrRef<RunId>, IdOrRef<TaskId>)>,
    Query(query): Query<OutputQuery>,
) -> HandlerResult<HttpResponse> {
    let run = refs::run(&service.db, caller.user, run).await?;
    let task = refs::task(&service.db, caller.user, task).await?;
    let attempt = outputs::attempt(&service.db, caller.user, run, task, query.attempt).await?;
    let range = http.headers().get(RANGE).and_then(|value| value.to_str().ok());
    if query.follow.unwrap_or(false) {
        Ok(follow(service, caller, (run, task, attempt), range))
    } else {
        Ok(stored(service, caller.user, attempt, range)?)
    }
}

fn head(status: StatusCode, attempt: Attempt) -> HttpResponseBuilder {
    let mut head = HttpResponse::build(status);
    head.insert_header((CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header((HeaderName::from_static("x-content-type-options"), "nosniff"))
        .insert_header((HeaderName::from_static("x-attempt"), attempt.number.to_string()))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((ACCEPT_RANGES, "bytes"));
    head
}

/// The output that is stored now. Its length is known, and its bytes do not change any more.
fn stored(
    service: State<Orchestrator>,
    owner: UserId,
    attempt: Attempt,
    range: Option<&str>,
) -> Result<HttpResponse, Error> {
    let length = attempt.stored;
    // A range in an unknown unit, or a list of ranges, is ignored (RFC 9110, section 14.2).
    let range =
        range.filter(|header| header.trim_start().to_ascii_lowercase().starts_with("bytes=") && !header.contains(','));
    let (mut response, from, end) = match range {
        None => (head(StatusCode::OK, attempt), 0, length),
        Some(header) => {
            let (first, last) = byte_range(header, length).ok_or(Error::OutOfRange { length })?;
            let mut response = head(StatusCode::PARTIAL_CONTENT, attempt);
            response.insert_header((CONTENT_RANGE, format!("bytes {first}-{last}/{length}")));
            (response, first, last + 1)
        }
    };
    let Some(lease) = attempt.lease.filter(|_| from < end) else { return Ok(response.body("")) };
    let pieces = stream::try_unfold(from, move |at| {
        let db = service.db.clone();
        async move {
            if at >= end {
                return Ok(None);
            }
            let mut piece = outputs::read(&db, owner, lease, at).await.map_err(std::io::Error::other)?;
            piece.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
            if piece.is_empty() {
                return Err(std::io::Error::other("stored output is missing"));
            }
            let next = at + piece.len() as u64;
            Ok(Some((Bytes::from(piece), next)))
        }
    });
    Ok(response.no_chunking(end - from).streaming(pieces))
}

/// The output that is stored, and then new output as it arrives.
fn follow(
    service: State<Orchestrator>,
    caller: Caller,
    (run, task, attempt): (RunId, TaskId, Attempt),
    range: Option<&str>,
) -> HttpResponse {
    let from = range.and_then(|header| byte_range(header, VERY_LARGE)).map(|(first, _)| first);
    let mut response = match from {
        None => head(StatusCode::OK, attempt),
        Some(first) => {
            let mut response = head(StatusCode::PARTIAL_CONTENT, attempt);
            response.insert_header((CONTENT_RANGE, format!("bytes {first}-{VERY_LARGE}/*")));
            response
        }
    };
    let token = TokenWatch::new(&service, caller.clone());
    let run_changes = service.db.notifier().subscribe(topics::run_changed(run));
    let at = from.unwrap_or(0);
    let live = LiveOutput { service, caller, run, task, attempt, at, run_changes, output: None, token };
    response.insert_header((HeaderName::from_static("x-accel-buffering"), "no")).streaming(stream::unfold(
        live,
        |live| async move {
            let (piece, live) = live.next().await?;
            Some((Ok::<_, Infallible>(piece), live))
        },
    ))
}

struct LiveOutput {
    service: State<Orchestrator>,
    caller: Caller,
    run: RunId,
    task: TaskId,
    attempt: Attempt,
    at: u64,
    /// Notified when the first attempt starts, and when an attempt ends.
    run_changes: Subscription,
    output: Option<(LeaseId, Subscription)>,
    token: TokenWatch,
}

impl LiveOutput {
    /// The next piece. `None` at the end of the attempt, when the token is no longer valid, and when the service stops.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let service = self.service.clone();
        loop {
            // The state of the attempt is read before its output, so that no output from before its end is missed.
            let number = Some(self.attempt.number).filter(|number| *number > 0);
            self.attempt = outputs::attempt(&service.db, self.caller.user, self.run, self.task, number).await.ok()?;
            if let Some(lease) = self.attempt.lease {
                if self.output.as_ref().is_none_or(|(known, _)| *known != lease) {
                    self.output = Some((lease, service.db.notifier().subscribe(topics::output(lease))));
                    continue;
                }
                let piece = outputs::read(&service.db, self.caller.user, lease, self.at).await.ok()?;
                if !piece.is_empty() {
                    self.at += piece.len() as u64;
                    return Some((piece.into(), self));
                }
            }
            if self.attempt.is_over || service.drain.is_closing() || self.token.check(&service).is_err() {
                return None;
            }
            tokio::select! {
                () = more_output(&mut self.output) => {}
                () = self.run_changes.changed() => {}
                () = self.token.needs_check(&service) => {}
                () = service.drain.closing() => {}
            }
        }
    }
}

async fn more_output(output: &mut Option<(LeaseId, Subscription)>) {
    match output {
        Some((_, subscription)) => subscription.changed().await,
        None => std::future::pending().await,
    }
}
