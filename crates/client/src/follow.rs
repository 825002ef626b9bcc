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
    pub(crate) timeouts: FollowTimeouts,
}

/// The events of `source`, without gaps across reconnects. The stream ends when there can be no more events, or with an
/// error when the service refuses to continue or was unavailable for too long.
pub(crate) fn follow(client: Client, source: Source) -> impl Stream<Item = Result<Event>> + Send + use<> {
    let way = client.0.streams.way();
    let (body, reader) = (None, Reader::default());
    let follower = Follower { client, source, way, body, is_silent: true, reader, ended: None, connects: 0 };
    stream::try_unfold(
        follower,
        |mut follower| async move { Ok(follower.next().await?.map(|event| (event, follower))) },
    )
}

#[derive(Deserialize)]
struct End {
    reason: String,
}

/// How a client opens streams. Some proxies hold back the answer to GET until it ends, and not the one to POST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing is known yet.
    TryGet,
    /// GET was held back.
    TryPost,
    Get,
    Post,
}

/// The way that works, for all streams of a client.
#[derive(Debug, Default)]
pub(crate) struct Streams(AtomicU8);

impl Streams {
    pub(crate) fn way(&self) -> Way {
        match self.0.load(Ordering::Relaxed) {
            1 => Way::Get,
            2 => Way::Post,
            _ => Way::TryGet,
        }
    }

    /// Notes that a byte has come this way.
    fn works(&self, way: Way) -> Way {
        let (way, known) = if matches!(way, Way::Post | Way::TryPost) { (Way::Post, 2) } else { (Way::Get, 1) };
        self.0.store(known, Ordering::Relaxed);
        way
    }

    /// The client may be behind another proxy now.
    fn forget(&self) -> Way {
        self.0.store(0, Ordering::Relaxed);
        Way::TryGet
    }
}

struct Follower {
    client: Client,
    source: Source,
    way: Way,
    body: Option<BoxStream<'static, reqwest::Result<Bytes>>>,
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
            match &mut self.body {
                None => {
                    if !self.connect().await? {
                        return Ok(None);
                    }
                    if self.source.marks_connections {
                        return Ok(Some(Event { name: CONNECTED.to_owned(), id: None, data: String::new() }));
                    }
                }
                Some(body) => {
                    let is_tried = self.is_silent && self.way == Way::TryGet;
                    let silence = if is_tried { FIRST_BYTE_WITHIN } else { self.source.timeouts.silence };
                    match timeout(silence, body.next()).await {
                        Ok(Some(Ok(chunk))) if self.reader.push(&chunk).is_ok() => {
                            if self.is_silent {
                                self.way = self.client.0.streams.works(self.way);
                            }
                            self.is_silent = false;
                        }
                        Err(_) if is_tried => self.try_post(),
                        Err(_) if self.is_silent => (self.body, self.way) = (None, self.client.0.streams.forget()),
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
                Ok(body) => {
                    let is_open = body.is_some();
                    (self.body, self.is_silent) = (body, true);
                    return Ok(is_open);
                }
                Err(Error::TimedOut { .. }) if self.way == Way::TryGet => {
                    self.try_post();
                    continue;
                }
                // An older server, or a proxy that takes no POST here. Its answer to GET takes its time.
                Err(error) if self.way == Way::TryPost && retry::again(&error, Repeat::Harmless).is_none() => {
                    self.way = Way::Get;
                    continue;
                }
                Err(error @ Error::TimedOut { .. }) => {
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

    /// The next connection is by POST, and at once.
    fn try_post(&mut self) {
        (self.way, self.body, self.connects) = (Way::TryPost, None, 0);
    }

    /// The body of a stream; `None` when what it is about is over, and its last event is known.
    fn open(&self) -> impl Future<Output = Result<Option<BoxStream<'static, reqwest::Result<Bytes>>>>> + Send + '_ {
        let path: Vec<&str> = self.source.path.iter().map(String::as_str).collect();
        let call = match self.way {
            Way::TryGet => self.client.get(&path).head_within(HEAD_WITHIN),
            Way::Get => self.client.get(&path),
            Way::TryPost | Way::Post => self.client.post(&path, Repeat::Harmless),
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
