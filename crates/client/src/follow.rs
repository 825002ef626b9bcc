//! Follows a live stream: reconnects, resumes after the last event, signs in again when needed.

use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ensemble_types::problem::Code;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use reqwest::StatusCode;
use reqwest::header::HeaderName;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::error::{Error, Result};
use crate::poll::{Look, Poll};
use crate::retry::{self, Repeat};
pub use crate::sse::Event;
use crate::sse::Reader;
use crate::transport::Client;

/// The timeouts of a follower.
#[derive(Clone, Copy, Debug)]
pub struct FollowTimeouts {
    /// A stream without data for this long is treated as broken. The service sends a comment every 15 seconds.
    pub silence: Duration,
    /// The follower gives up after this long without a connection.
    pub away: Duration,
}

impl Default for FollowTimeouts {
    fn default() -> Self {
        Self { silence: Duration::from_secs(45), away: Duration::from_secs(300) }
    }
}

/// A proxy that holds streams back sends no head for this time, or no byte after it. A service sends both at once.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(3);
/// An answer to GET that takes its time has a head by then.
const SLOW_HEAD_WITHIN: Duration = Duration::from_secs(15);

/// The name of an event that no service sends.
pub(crate) const CONNECTED: &str = "(connected)";

/// What to follow, and the starting point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    pub(crate) path: Vec<String>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The id of the last event that was received.
    pub(crate) after: Option<String>,
    /// Gives an event [`CONNECTED`] at each connection, because the stream does not say what happened before.
    pub(crate) marks_connections: bool,
    /// How the same is read where streams are held back.
    pub(crate) look: Option<Look>,
    pub(crate) timeouts: FollowTimeouts,
}

/// The events of `source`, without gaps across reconnects. The stream ends when there can be no more events, or with an
/// error when the service refuses to continue or was unavailable for too long.
pub(crate) fn follow(client: Client, source: Source) -> impl Stream<Item = Result<Event>> + Send + use<> {
    let way = match client.0.streams.way() {
        Way::Poll if source.look.is_none() => Way::TryGet,
        way => way,
    };
    let (body, poll, reader) = (None, None, Reader::default());
    let follower = Follower { client, source, way, body, poll, is_silent: true, reader, ended: None, connects: 0 };
    stream::try_unfold(
        follower,
        |mut follower| async move { Ok(follower.next().await?.map(|event| (event, follower))) },
    )
}

fn connected() -> Event {
    Event { name: CONNECTED.to_owned(), id: None, data: String::new() }
}

#[derive(Deserialize)]
struct End {
    reason: String,
}

/// How a client opens streams. Some proxies hold back the answer to GET until it ends, and some the one to POST as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing is known yet.
    TryGet,
    /// GET was held back.
    TryPost,
    /// POST was refused, as by an older server, whose answer to GET takes its time.
    TrySlowGet,
    Get,
    Post,
    /// Both were held back: what streams bring is read by calls.
    Poll,
}

/// The way that works, for all streams of a client.
#[derive(Debug, Default)]
pub(crate) struct Streams(AtomicU8);

impl Streams {
    pub(crate) fn way(&self) -> Way {
        match self.0.load(Ordering::Relaxed) {
            1 => Way::Get,
            2 => Way::Post,
            3 => Way::Poll,
            _ => Way::TryGet,
        }
    }

    /// Notes that a byte has come this way.
    fn works(&self, way: Way) -> Way {
        let (way, known) = match way {
            Way::TryGet | Way::TrySlowGet | Way::Get => (Way::Get, 1),
            Way::TryPost | Way::Post => (Way::Post, 2),
            Way::Poll => (Way::Poll, 3),
        };
        self.0.store(known, Ordering::Relaxed);
        way
    }

    fn forget(&self) -> Way {
        self.0.store(0, Ordering::Relaxed);
        Way::TryGet
    }
}

type Body = BoxStream<'static, reqwest::Result<Bytes>>;

struct Follower {
    client: Client,
    source: Source,
    way: Way,
    body: Option<Body>,
    /// In place of a body.
    poll: Option<Poll>,
    /// The body has had no byte.
    is_silent: bool,
    reader: Reader,
    /// The reason of the last `event: end`, until another event arrives.
    ended: Option<String>,
    connects: u32,
}

impl Follower {
    async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.reader.pop() {
                if event.name == "end" {
                    if self.end(&event.data).await {
                        return Ok(None);
                    }
                    continue;
                }
                self.ended = None;
                self.connects = 1;
                if event.id.is_some() {
                    self.source.after.clone_from(&event.id);
                }
                return Ok(Some(event));
            }
            if let Some(poll) = &mut self.poll {
                match poll.next(&self.client, self.source.after.as_deref()).await {
                    Ok(Some(events)) => self.reader.put(events),
                    Ok(None) => self.try_again(),
                    Err(error) if retry::again(&error, Repeat::Harmless).is_some() => self.poll = None,
                    Err(error) => return Err(error),
                }
                continue;
            }
            match &mut self.body {
                None => {
                    if !self.connect().await? {
                        return Ok(None);
                    }
                    if self.poll.is_some() && self.source.marks_connections {
                        return Ok(Some(connected()));
                    }
                }
                Some(body) => {
                    let is_tried = self.is_silent && matches!(self.way, Way::TryGet | Way::TryPost);
                    let silence = if is_tried { FIRST_BYTE_WITHIN } else { self.source.timeouts.silence };
                    match timeout(silence, body.next()).await {
                        Ok(Some(Ok(chunk))) if self.reader.push(&chunk).is_ok() => {
                            if std::mem::replace(&mut self.is_silent, false) {
                                self.way = self.client.0.streams.works(self.way);
                                if self.source.marks_connections {
                                    return Ok(Some(connected()));
                                }
                            }
                        }
                        Err(_) if self.is_silent => _ = self.try_next(),
                        _ => self.body = None,
                    }
                }
            }
        }
    }

    /// The service has ended this stream. It may accept another one, at another replica or after a new sign-in. If it
    /// does not, the response to the next connection says so.
    ///
    /// Returns `true` when there is nothing more to follow.
    async fn end(&mut self, data: &str) -> bool {
        self.body = None;
        let end: Option<End> = serde_json::from_str(data).ok();
        let reason = end.map_or_else(|| data.to_owned(), |end| end.reason);
        match reason.as_str() {
            "terminal" => return true,
            "draining" | "unavailable" => {}
            _ => self.client.renew(),
        }
        self.ended = Some(reason);
        false
    }

    /// Returns `false` when there is nothing more to follow.
    async fn connect(&mut self) -> Result<bool> {
        if self.connects > 0 {
            let pause = self.client.0.retry.pause(self.connects, self.reader.reconnect);
            tokio::time::sleep(pause).await;
        }
        self.connects = self.connects.saturating_add(1);
        self.reader = Reader::for_reconnect(self.reader.reconnect);
        let since = Instant::now();
        loop {
            let error = match self.open().await {
                Ok(is_open) => return Ok(is_open),
                Err(error) if self.way == Way::TryPost && retry::again(&error, Repeat::Harmless).is_none() => {
                    self.way = Way::TrySlowGet;
                    continue;
                }
                Err(error @ Error::TimedOut { .. }) => {
                    if self.try_next() {
                        continue;
                    }
                    error
                }
                // Without a network everything seems to be held back.
                Err(error) if self.way == Way::Poll && error.code().is_none() => {
                    self.way = self.client.0.streams.forget();
                    error
                }
                Err(error) => error,
            };
            if let (Some(reason), Some(Code::Unauthenticated | Code::Forbidden | Code::NotFound | Code::LinkNotFound)) =
                (&self.ended, error.code())
            {
                return Err(Error::StreamEnded { reason: reason.clone() });
            }
            let may_return = retry::again(&error, Repeat::Harmless).is_some();
            if !may_return || since.elapsed() >= self.source.timeouts.away {
                return Err(error);
            }
            tokio::time::sleep(self.client.0.retry.longest).await;
        }
    }

    /// Nothing has come in time, so another way is next. `true`: at once.
    fn try_next(&mut self) -> bool {
        self.body = None;
        self.way = match self.way {
            Way::TryGet => Way::TryPost,
            Way::TryPost | Way::TrySlowGet if self.source.look.is_some() => Way::Poll,
            // What cannot be polled says nothing about the others.
            _ if self.client.0.streams.way() == Way::Poll => Way::TryGet,
            // The client may be behind another proxy now.
            _ => self.client.0.streams.forget(),
        };
        let is_next = self.way != Way::TryGet;
        if is_next {
            self.connects = 0;
        }
        is_next
    }

    /// It was polled for a while: the address may hold nothing back any more.
    fn try_again(&mut self) {
        (self.way, self.poll, self.connects) = (Way::TryPost, None, 0);
    }

    /// Opens the stream, or looks for the first time. `false`: what it is about is over, and its last event is known.
    async fn open(&mut self) -> Result<bool> {
        if let (Way::Poll, Some(look)) = (self.way, &self.source.look) {
            let mut poll = Poll::new(look.clone());
            let events = poll.next(&self.client, self.source.after.as_deref()).await?;
            self.reader.put(events.unwrap_or_default());
            self.poll = Some(poll);
            self.way = self.client.0.streams.works(self.way);
            return Ok(true);
        }
        let body = self.open_body().await?;
        let is_open = body.is_some();
        (self.body, self.is_silent) = (body, true);
        Ok(is_open)
    }

    /// The body of a stream; `None` when what it is about is over, and its last event is known.
    fn open_body(&self) -> impl Future<Output = Result<Option<Body>>> + Send + '_ {
        let path: Vec<&str> = self.source.path.iter().map(String::as_str).collect();
        let call = match self.way {
            Way::TryGet => self.client.get(&path).head_within(HEAD_WITHIN),
            Way::TrySlowGet if self.source.look.is_some() => self.client.get(&path).head_within(SLOW_HEAD_WITHIN),
            Way::TrySlowGet | Way::Get | Way::Poll => self.client.get(&path),
            Way::TryPost => self.client.post(&path, Repeat::Harmless).head_within(HEAD_WITHIN),
            Way::Post => self.client.post(&path, Repeat::Harmless),
        };
        let mut call = call.header(reqwest::header::ACCEPT, Some("text/event-stream"));
        for (name, value) in &self.source.query {
            call = call.query(name, Some(value));
        }
        for (name, value) in &self.source.headers {
            call = call.header(HeaderName::from_static(name), Some(value));
        }
        call = call.header(HeaderName::from_static("last-event-id"), self.source.after.as_deref());
        async move {
            let response = call.send_open().await?;
            let is_over = response.status() == StatusCode::NO_CONTENT;
            Ok((!is_over).then(|| response.bytes_stream().boxed()))
        }
    }
}
