//! Sessions live: Server-Sent Events with messages and changes of the session.

use std::collections::VecDeque;
use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::auth::BadToken;
use ensemble_chassis::live::{self, Event, LongEvents, Outgoing, PIECE, Sending};
use ensemble_chassis::{Caller, Clock, HandlerResult, KeySource, Path, Query, State};
use ensemble_types::events::EndReason;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::IdOrRef;
use ensemble_types::time::Timestamp;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Duration, sleep};
use utoipa::IntoParams;

use crate::SessionStore;
use crate::domain::Invalid;
use crate::domain::stream::{Audience, LongEvent};
use crate::error::Error;
use crate::handlers::actor;
use crate::operations::sessions;
use crate::operations::streams::{self, SessionStream, Step, StreamEvent, Wake};

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct StreamQuery {
    /// Starts after this `seq`. `Last-Event-ID` takes precedence. Without either, the stream starts with the next message.
    pub(crate) after: Option<u64>,
}

pub(crate) async fn open(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Query(query): Query<StreamQuery>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    let id = sessions::resolve(&service, id).await?;
    let after = start(&request, &query)?;
    let reader = actor(&caller);
    let credentials = Credentials::of(&service, caller);
    Ok(respond(service, id, Audience::Member(reader), after, credentials).await?)
}

/// Where a stream starts (WHATWG HTML, section 9.2.4 for the header).
pub(crate) fn start(request: &HttpRequest, query: &StreamQuery) -> Result<Option<i64>, Error> {
    let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
    match live::last_event_id(request) {
        None => Ok(query.after.map(number)),
        Some(id) => match id.parse().ok() {
            Some(seq) => Ok(Some(number(seq))),
            None => Err(Invalid::new("Last-Event-ID", "must be the id of an event of this stream").into()),
        },
    }
}

/// Responds with the stream of a session.
pub(crate) async fn respond(
    service: State<SessionStore>,
    session: SessionId,
    audience: Audience,
    after: Option<i64>,
    credentials: Credentials,
) -> Result<HttpResponse, Error> {
    let service = service.into_inner();
    let stream = streams::open(Arc::clone(&service), session, audience, after).await?;
    let (items, long_events) = (VecDeque::new(), service.long_events.clone());
    let feed = Feed { stream, credentials, next: Next::Read, is_live: false, items, long_events };
    Ok(live::sse(
        stream::unfold(feed, |mut feed| async { feed.next().await.map(|event| (event, feed)) }),
        &service.drain,
    ))
}

/// The credentials of a stream's reader, which can end before the reader's access does.
pub(crate) enum Credentials {
    Caller {
        caller: Caller,
        keys: Arc<dyn KeySource>,
        changes: watch::Receiver<()>,
        clock: Clock,
    },
    /// A view token and its expiry.
    ViewToken(Timestamp, Clock),
}

struct Feed {
    stream: SessionStream,
    credentials: Credentials,
    next: Next,
    is_live: bool,
    /// What has been read and not been sent.
    items: VecDeque<Outgoing<LongEvent>>,
    long_events: LongEvents<LongEvent>,
}

/// What a feed does when it is polled.
enum Next {
    Read,
    Wait,
    Stop,
}

impl Feed {
    /// The next event or part of one; `None` after the last.
    async fn next(&mut self) -> Option<Event> {
        loop {
            match self.items.pop_front() {
                Some(Outgoing::Short(event)) => return Some(event),
                Some(Outgoing::Long(sending)) => return self.send_piece(sending).await,
                None => {}
            }
            let waits = match self.next {
                Next::Stop => return None,
                Next::Read => false,
                Next::Wait => true,
            };
            let wake = if waits { self.woken().await } else { Wake::Changed };
            if let Err(reason) = self.credentials.check() {
                return Some(self.end(reason));
            }
            if let Wake::Frame(frame) = wake {
                self.items = self.stream.frame(frame).await.iter().map(|event| self.item(event)).collect();
                continue;
            }
            // A stream that has caught up reads what the others of its session read.
            self.is_live |= waits;
            let step = if self.is_live { self.stream.read_latest().await } else { self.stream.read().await };
            match step {
                Ok(Step::Send { events, more }) => {
                    self.next = if more { Next::Read } else { Next::Wait };
                    self.items = events.iter().map(|event| self.item(event)).collect();
                }
                Ok(Step::End(reason)) => return Some(self.end(reason)),
                Err(error) => {
                    tracing::warn!(?error, "Could not read a stream");
                    return Some(self.end(EndReason::Unavailable));
                }
            }
        }
    }

    async fn woken(&mut self) -> Wake {
        tokio::select! {
            wake = self.stream.woken() => wake,
            () = self.credentials.changed() => Wake::Changed,
        }
    }

    fn item(&self, event: &StreamEvent) -> Outgoing<LongEvent> {
        let session = self.stream.session();
        let (seq, is_public, length) = match event {
            StreamEvent::Message(message) => (message.seq, false, message.content.len()),
            StreamEvent::PublicMessage(message) => (message.seq, true, message.content.len()),
            StreamEvent::Frame(_) => {
                let event = encode(event);
                let digest = event.digest();
                return self.long_events.outgoing(|| LongEvent::Frame { session, digest }, event);
            }
            StreamEvent::Session(_) | StreamEvent::PublicSession(_) => {
                let (reader, event) = (self.stream.reader(), encode(event));
                let digest = event.digest();
                return self.long_events.outgoing(|| LongEvent::Session { session, reader, digest }, event);
            }
        };
        let key = LongEvent::Message { session, seq, is_public };
        if length > PIECE {
            return self.long_events.long(key, || encode(event));
        }
        self.long_events.outgoing(|| key, encode(event))
    }

    /// The next piece of a long event. A message never changes, so one that is no longer kept is read again.
    async fn send_piece(&mut self, mut sending: Sending<LongEvent>) -> Option<Event> {
        let mut piece = self.long_events.piece(&mut sending);
        if let (None, LongEvent::Message { seq, .. }) = (&piece, sending.key) {
            let message = self.stream.message(seq).await.ok()??;
            self.long_events.keep(&sending.key, encode(&message));
            piece = self.long_events.piece(&mut sending);
        }
        if piece.is_some() && !sending.is_sent() {
            self.items.push_front(Outgoing::Long(sending));
        }
        piece
    }

    fn end(&mut self, reason: EndReason) -> Event {
        self.next = Next::Stop;
        Event::end(reason)
    }
}

fn encode(event: &StreamEvent) -> Event {
    match event {
        StreamEvent::Message(message) => json_event("message", Some(message.seq), message.as_ref()),
        StreamEvent::PublicMessage(message) => json_event("message", Some(message.seq), message),
        StreamEvent::Frame(frame) => json_event("live", None, &frame.sent),
        StreamEvent::Session(session) => json_event("session", None, session.as_ref()),
        StreamEvent::PublicSession(session) => json_event("session", None, session),
    }
}

pub(super) fn json_event(name: &str, seq: Option<i64>, data: &impl Serialize) -> Event {
    let id = seq.map(|seq| seq.to_string());
    match serde_json::to_string(data) {
        Ok(data) => Event::new(name, id.as_deref(), &data),
        Err(error) => {
            tracing::error!(%error, "Could not write an event as JSON");
            Event::end(EndReason::Unavailable)
        }
    }
}

impl Credentials {
    pub(super) fn of(service: &SessionStore, caller: Caller) -> Self {
        Self::Caller {
            changes: service.keys.changes(),
            keys: Arc::clone(&service.keys) as Arc<dyn KeySource>,
            clock: service.clock.clone(),
            caller,
        }
    }

    /// Completes when [`Credentials::check`] may have another result.
    pub(super) async fn changed(&mut self) {
        match self {
            Self::ViewToken(expiry, clock) => sleep(expiry.since(clock.now())).await,
            Self::Caller { caller, changes, clock, .. } => {
                // Services accept a token for 30 s after its expiry, because clocks differ. One second more is after that.
                let expiry = caller.expires_at.plus(Duration::from_secs(31));
                tokio::select! {
                    () = sleep(expiry.since(clock.now())) => {}
                    changed = changes.changed() => {
                        if changed.is_err() {
                            sleep(Duration::from_secs(1)).await;
                        }
                    }
                }
            }
        }
    }

    /// Fails with the reason for the `end` event.
    pub(super) fn check(&self) -> Result<(), EndReason> {
        match self {
            Self::ViewToken(expiry, clock) if clock.now() >= *expiry => Err(EndReason::TokenExpired),
            Self::ViewToken(..) => Ok(()),
            Self::Caller { caller, keys, clock, .. } => {
                let keys = keys.current().map_err(|_| EndReason::Unavailable)?;
                caller.check(&keys, clock.now()).map_err(|reason| match reason {
                    BadToken::Expired => EndReason::TokenExpired,
                    _ => EndReason::TokenRevoked,
                })
            }
        }
    }
}
