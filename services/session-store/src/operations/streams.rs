//! Live streams of sessions. Each time a stream reads, it reads its reader's access again, after what is new; nothing is sent
//! that was not read this way.

use std::sync::Arc;

use ensemble_store_kit::{Conn, Subscription};
use ensemble_types::events::EndReason;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::links::{PublicMessage, PublicSession};
use ensemble_types::messages::Message;
use ensemble_types::sessions::Session;

use super::latest_page_cache::LatestPage;
use super::live::{Following, Frame};
use super::public_links::{check_viewing, public_message};
use super::{read_session, session_topic, sessions};
use crate::SessionStore;
use crate::domain::access::Refusal;
use crate::domain::history::Window;
use crate::domain::stream::{Audience, Position};
use crate::error::Error;
use crate::store;
use crate::store::sessions::SessionRow;

/// The most messages that a stream reads at once.
const MAX_MESSAGES: i64 = 200;

/// The most content that a stream reads at once, unless one message is longer: what a reader that does not read costs.
const STEP_BYTES: i64 = 16 << 10;

/// A session as one reader follows it.
pub(crate) struct SessionStream {
    service: Arc<SessionStore>,
    session: SessionId,
    audience: Audience,
    position: Position,
    changes: Subscription,
    frames: Following,
}

/// Why a stream was woken.
pub(crate) enum Wake {
    /// The session may have changed.
    Changed,
    /// A live frame has come.
    Frame(Arc<Frame>),
}

/// An event to send.
pub(crate) enum StreamEvent {
    Message(Arc<Message>),
    PublicMessage(PublicMessage),
    Frame(Arc<Frame>),
    Session(Box<Session>),
    PublicSession(PublicSession),
}

/// What a stream does next.
pub(crate) enum Step {
    /// Send these events, if any. With `more`, there are further ones to read at once.
    Send {
        events: Vec<StreamEvent>,
        more: bool,
    },
    End(EndReason),
}

/// Begins to follow a session after message `after`; without it, after the newest.
pub(crate) async fn open(
    service: Arc<SessionStore>,
    session: SessionId,
    audience: Audience,
    after: Option<i64>,
) -> Result<SessionStream, Error> {
    // Subscribe before the first read, so that no change between the two is missed.
    let changes = service.db.notifier().subscribe(session_topic(session));
    let frames = service.live_feeds.follow(session);
    let reader = audience.clone();
    let row = service.db.read("open a stream", move |c| check(c, session, &reader)).await?;
    let position = Position { seq: after.unwrap_or(row.last_seq), stamp: row.stamp() };
    Ok(SessionStream { service, session, audience, position, changes, frames })
}

impl SessionStream {
    /// Completes when there may be something to send. A frame goes before the message that it is a part of.
    pub(crate) async fn woken(&mut self) -> Wake {
        tokio::select! {
            biased;
            frame = self.frames.next() => Wake::Frame(frame),
            () = self.changes.changed() => Wake::Changed,
        }
    }

    /// The event for a frame, unless its reader lost access before it arrived.
    pub(crate) async fn frame(&self, frame: Arc<Frame>) -> Option<StreamEvent> {
        let is_allowed = match &self.audience {
            Audience::Member(reader) => frame.is_for(reader),
            Audience::Public { link, view_token } => {
                let (link, view_token) = (*link, view_token.clone());
                let viewing =
                    self.service.db.read("check a viewing", move |c| check_viewing(c, link, &view_token)).await;
                viewing.is_ok()
            }
        };
        is_allowed.then_some(StreamEvent::Frame(frame))
    }

    /// Reads what is new for this stream.
    pub(crate) async fn read(&mut self) -> Result<Step, Error> {
        let (session, audience, position) = (self.session, self.audience.clone(), self.position);
        let online_for = self.service.online_for;
        let read = self.service.db.read("read a stream", move |c| {
            let window = window_after(position.seq);
            let messages = store::messages::page(c, session, window)?;
            let row = match check(c, session, &audience) {
                Err(Error::Refused(_) | Error::LinkNotFound) => return Ok(Err(end_reason(c, session, &audience)?)),
                row => row?,
            };
            let mut events = Vec::with_capacity(messages.len() + 1);
            let next = Position { seq: messages.last().map_or(position.seq, |last| last.seq), stamp: row.stamp() };
            let more = !messages.is_empty() && next.seq < row.last_seq;
            events.extend(messages.into_iter().map(|message| message_for(&audience, message)));
            if next.stamp != position.stamp {
                events.push(match audience.clone() {
                    Audience::Member(reader) => {
                        StreamEvent::Session(Box::new(sessions::load(c, session, &reader, online_for)?))
                    }
                    Audience::Public { .. } => {
                        StreamEvent::PublicSession(store::public_sessions::load(c, session)?.ok_or(Refusal::NotFound)?)
                    }
                });
            }
            Ok::<_, Error>(Ok((events, next, more)))
        });
        Ok(match read.await? {
            Ok((events, next, more)) => {
                self.position = next;
                Step::Send { events, more }
            }
            Err(reason) => Step::End(reason),
        })
    }

    /// Reads what is new since the session last changed, together with the other streams of the session.
    pub(crate) async fn read_latest(&mut self) -> Result<Step, Error> {
        if let Audience::Member(reader) = &self.audience
            && let Ok(page) = self.latest_page().await
            && page.check(reader).is_ok()
            && page.session.stamp() == self.position.stamp
        {
            if let Some(last) = page.messages.last() {
                self.position.seq = last.seq;
            }
            let more = !page.messages.is_empty() && self.position.seq < page.session.last_seq;
            let events = page.messages.iter().map(|message| StreamEvent::Message(Arc::clone(message))).collect();
            return Ok(Step::Send { events, more });
        }
        // Public readers, revoked access, a changed session and failures are handled by the stream's own read.
        self.read().await
    }

    /// Reads one message again.
    pub(crate) async fn message(&self, seq: i64) -> Result<Option<StreamEvent>, Error> {
        let (session, audience) = (self.session, self.audience.clone());
        let found =
            self.service.db.read("read a message again", move |c| store::messages::find(c, session, seq)).await?;
        Ok(found.map(|message| message_for(&audience, message)))
    }

    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// The reader; `None` with a public link.
    pub(crate) fn reader(&self) -> Option<UserId> {
        if let Audience::Member(reader) = &self.audience { Some(reader.user) } else { None }
    }

    async fn latest_page(&self) -> Result<Arc<LatestPage>, Error> {
        let SessionStore { db, latest_pages, .. } = &*self.service;
        latest_pages.page(db, self.session, self.position.seq, self.changes.delivered_at()).await
    }
}

fn message_for(audience: &Audience, message: Message) -> StreamEvent {
    match audience {
        Audience::Member(_) => StreamEvent::Message(Arc::new(message)),
        Audience::Public { .. } => StreamEvent::PublicMessage(public_message(message)),
    }
}

/// The messages that a stream reads at once.
pub(super) fn window_after(seq: i64) -> Window {
    Window { after: Some(seq), before: None, limit: MAX_MESSAGES, bytes: STEP_BYTES }
}

/// Fails unless this reader may read the session now.
fn check(c: &mut Conn, session: SessionId, audience: &Audience) -> Result<SessionRow, Error> {
    match audience {
        Audience::Member(reader) => Ok(read_session(c, session, reader)?.0),
        Audience::Public { link, view_token } => {
            check_viewing(c, *link, view_token)?;
            Ok(store::sessions::find(c, session)?.ok_or(Refusal::NotFound)?)
        }
    }
}

fn end_reason(c: &mut Conn, session: SessionId, audience: &Audience) -> Result<EndReason, Error> {
    let exists = store::sessions::find(c, session)?.is_some();
    Ok(match audience {
        _ if !exists => EndReason::SessionDeleted,
        Audience::Member(_) => EndReason::AccessRevoked,
        Audience::Public { .. } => EndReason::LinkEnded,
    })
}
