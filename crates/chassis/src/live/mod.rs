//! Answers that stay open: Server-Sent Events (WHATWG HTML, section 9.2).

mod long_events;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use ensemble_types::events::EndReason;
use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::process::Drain;

pub use long_events::{LongEvents, Outgoing, PIECE, Sending};

/// How often a stream without events sends a comment, so that clients and proxies keep the connection.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event of a stream, or a part of one, encoded.
#[derive(Clone, Debug)]
pub struct Event {
    bytes: Bytes,
    /// The rest of the event follows, so that nothing may come between.
    continues: bool,
}

impl Event {
    /// `data` must be one line. The JSON that serde_json writes is one line.
    pub fn new(name: &str, id: Option<&str>, data: &str) -> Self {
        let mut frame = String::with_capacity(name.len() + data.len() + 48);
        if let Some(id) = id {
            let _ = writeln!(frame, "id: {id}");
        }
        let _ = writeln!(frame, "event: {name}");
        // A line break inside data would end the field, so each line becomes a field of its own.
        for line in data.split('\n') {
            let _ = writeln!(frame, "data: {line}");
        }
        frame.push('\n');
        Self::from_bytes(frame.into())
    }

    /// The last event: the reason why the stream ends, and when a client should connect again, if there can be more.
    pub fn end(reason: EndReason) -> Self {
        let retry = if reason.is_final() { "" } else { "retry: 500\n" };
        Self::from_bytes(format!("event: end\n{retry}data: {{\"reason\":\"{}\"}}\n\n", reason.as_str()).into())
    }

    /// The last event with an id, by which a reader that connects again shows that it knows the end.
    pub fn end_with_id(reason: EndReason, id: &str) -> Self {
        let end = Self::end(reason).bytes;
        Self::from_bytes([format!("id: {id}\n").as_bytes(), &end].concat().into())
    }

    /// A short form of what is sent, to tell events apart.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        hasher.finish()
    }

    /// Several events that are encoded already.
    pub fn from_bytes(frames: Bytes) -> Self {
        Self { bytes: frames, continues: false }
    }
}

/// A response that sends `events` as they come, a comment after [`KEEP_ALIVE`] without one, and `event: end` with the
/// reason `draining` when the service stops. The stream ends when `events` does.
pub fn sse(events: impl Stream<Item = Event> + 'static, drain: &Drain) -> HttpResponse {
    let closing = drain.clone();
    let state = Sse {
        events: Box::pin(events),
        tick: ticking(),
        closing: Box::pin(async move { closing.closing().await }),
        is_inside_event: false,
        ended: false,
    };
    let hello = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b": connected\n\n")) });
    let body = hello.chain(stream::unfold(state, Sse::next));
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform")))
        .insert_header((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
        .streaming(body)
}

/// The id of the last event that the reader knows. A reader that knows none may send an empty one (WHATWG HTML, section 9.2.3).
pub fn last_event_id(request: &HttpRequest) -> Option<&str> {
    let id = request.headers().get("last-event-id")?.to_str().unwrap_or("?");
    Some(id).filter(|id| !id.is_empty())
}

/// The answer to a reader that knows the last event of what is over: it does not connect again (WHATWG HTML, section 9.2.2).
pub fn over() -> HttpResponse {
    HttpResponse::NoContent().insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store"))).finish()
}

struct Sse<S, C> {
    events: std::pin::Pin<Box<S>>,
    tick: Interval,
    closing: std::pin::Pin<Box<C>>,
    is_inside_event: bool,
    ended: bool,
}

impl<S: Stream<Item = Event>, C: Future<Output = ()>> Sse<S, C> {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.ended {
            return None;
        }
        let frame = tokio::select! {
            biased;
            event = self.events.next() => event?,
            () = &mut self.closing, if !self.is_inside_event => {
                self.ended = true;
                Event::end(EndReason::Draining)
            }
            _ = self.tick.tick(), if !self.is_inside_event => {
                Event::from_bytes(Bytes::from_static(b": still here\n\n"))
            }
        };
        self.tick.reset();
        self.is_inside_event = frame.continues;
        Some((Ok(frame.bytes), self))
    }
}

fn ticking() -> Interval {
    let mut tick = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}
