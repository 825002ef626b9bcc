//! What a task's attempts wrote: whole, in part, or live.

use std::convert::Infallible;

use actix_web::http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, HeaderName, RANGE};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use bytes::Bytes;
use ensemble_chassis::{Caller, HandlerResult, Path, Query, State};
use ensemble_store_kit::Subscription;
use ensemble_types::ids::{LeaseId, RunId, TaskId};
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::watch::Watch;
use crate::Orchestrator;
use crate::domain::byte_range;
use crate::error::Error;
use crate::store::{self, Attempt};

/// The last byte of a range of something that still grows (RFC 8673, section 2.2): the largest whole number of JSON.
const VERY_LARGE: u64 = (1 << 53) - 1;

/// Which output.
#[derive(Clone, Debug, Deserialize, IntoParams)]
pub(crate) struct OutputQuery {
    /// The latest when absent.
    attempt: Option<u32>,
    /// Sends what comes, as it comes, until the attempt is over.
    follow: Option<bool>,
}

pub(crate) async fn read(
    orchestrator: State<Orchestrator>,
    caller: Caller,
    http: HttpRequest,
    Path((run, task)): Path<(RunId, TaskId)>,
    Query(query): Query<OutputQuery>,
) -> HandlerResult<HttpResponse> {
    let attempt = orchestrator.store.attempt(caller.user, run, task, query.attempt).await?;
    let range = http.headers().get(RANGE).and_then(|value| value.to_str().ok());
    let of = Place { run, task, attempt };
    if query.follow.unwrap_or(false) {
        Ok(follow(orchestrator, caller, of, range))
    } else {
        Ok(whole(orchestrator, of, range)?)
    }
}

#[derive(Clone, Copy)]
struct Place {
    run: RunId,
    task: TaskId,
    attempt: Attempt,
}

fn head(status: StatusCode, attempt: Attempt) -> actix_web::HttpResponseBuilder {
    let mut head = HttpResponse::build(status);
    head.insert_header((CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header((HeaderName::from_static("x-content-type-options"), "nosniff"))
        .insert_header((HeaderName::from_static("x-attempt"), attempt.number.to_string()))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((ACCEPT_RANGES, "bytes"));
    head
}

/// What is there now. The length is known, and nothing of it can change any more.
fn whole(orchestrator: State<Orchestrator>, of: Place, range: Option<&str>) -> Result<HttpResponse, Error> {
    let length = of.attempt.stored;
    // A range that is not understood is no range (RFC 9110, section 14.2).
    let asked =
        range.filter(|header| header.trim_start().to_ascii_lowercase().starts_with("bytes=") && !header.contains(','));
    let (mut answer, from, end) = match asked {
        None => (head(StatusCode::OK, of.attempt), 0, length),
        Some(header) => {
            let (first, last) = byte_range(header, length).ok_or(Error::OutOfRange { length })?;
            let mut answer = head(StatusCode::PARTIAL_CONTENT, of.attempt);
            answer.insert_header((CONTENT_RANGE, format!("bytes {first}-{last}/{length}")));
            (answer, first, last + 1)
        }
    };
    let Some(lease) = of.attempt.lease.filter(|_| from < end) else { return Ok(answer.body("")) };
    let pieces = stream::try_unfold(from, move |at| {
        let store = orchestrator.store.clone();
        async move {
            if at >= end {
                return Ok(None);
            }
            let mut piece = store.read_output(lease, at).await.map_err(std::io::Error::other)?;
            piece.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
            if piece.is_empty() {
                return Err(std::io::Error::other("output that was kept is missing"));
            }
            let next = at + piece.len() as u64;
            Ok(Some((Bytes::from(piece), next)))
        }
    });
    Ok(answer.no_chunking(end - from).streaming(pieces))
}

/// What is there and what comes.
fn follow(orchestrator: State<Orchestrator>, caller: Caller, of: Place, range: Option<&str>) -> HttpResponse {
    let from = range.and_then(|header| byte_range(header, VERY_LARGE)).map(|(first, _)| first);
    let mut answer = match from {
        None => head(StatusCode::OK, of.attempt),
        Some(first) => {
            let mut answer = head(StatusCode::PARTIAL_CONTENT, of.attempt);
            answer.insert_header((CONTENT_RANGE, format!("bytes {first}-{VERY_LARGE}/*")));
            answer
        }
    };
    let watch = Watch::new(&orchestrator, caller.clone());
    let changes = orchestrator.store.notifier().subscribe(store::changed(of.run));
    let live = Live { orchestrator, caller, of, at: from.unwrap_or(0), changes, output: None, watch };
    answer.insert_header((HeaderName::from_static("x-accel-buffering"), "no")).streaming(stream::unfold(
        live,
        |live| async move {
            let (piece, live) = live.next().await?;
            Some((Ok::<_, Infallible>(piece), live))
        },
    ))
}

struct Live {
    orchestrator: State<Orchestrator>,
    caller: Caller,
    of: Place,
    at: u64,
    /// For attempts that end without a word, and for the first one.
    changes: Subscription,
    output: Option<(LeaseId, Subscription)>,
    watch: Watch,
}

impl Live {
    /// The next piece; nothing when there is no more, when the caller may not go on, or when the service stops.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let store = self.orchestrator.store.clone();
            // In this order: what was written before the attempt was over is read after it was seen to be over.
            let number = Some(self.of.attempt.number).filter(|number| *number > 0);
            let attempt = store.attempt(self.caller.user, self.of.run, self.of.task, number).await.ok()?;
            self.of.attempt = attempt;
            if let Some(lease) = attempt.lease {
                if self.output.as_ref().is_none_or(|(known, _)| *known != lease) {
                    self.output = Some((lease, store.notifier().subscribe(store::output(lease))));
                    continue;
                }
                let piece = store.read_output(lease, self.at).await.ok()?;
                if !piece.is_empty() {
                    self.at += piece.len() as u64;
                    return Some((piece.into(), self));
                }
            }
            if attempt.over || self.orchestrator.drain.is_closing() || self.watch.check(&self.orchestrator).is_err() {
                return None;
            }
            let orchestrator = self.orchestrator.clone();
            tokio::select! {
                () = more(&mut self.output) => {}
                () = self.changes.changed() => {}
                () = self.watch.alarm(&orchestrator) => {}
                () = orchestrator.drain.closing() => {}
            }
        }
    }
}

async fn more(output: &mut Option<(LeaseId, Subscription)>) {
    match output {
        Some((_, news)) => news.changed().await,
        None => std::future::pending().await,
    }
}
