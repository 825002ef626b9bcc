//! Sessions and their messages. Contents pass through unchanged; `ensemble_protocol::seal` encrypts and decrypts them.

use std::cmp::Reverse;
use std::time::Duration;

use ensemble_types::ids::SessionId;
use ensemble_types::live::{LiveFrame, LiveFrames, LiveFramesSent};
use ensemble_types::messages::{AppendMessage, AppendMessages, AppendedMessages, Message, MessagePage};
use ensemble_types::refs::Ref;
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use futures_util::{Stream, StreamExt, stream};

use crate::error::{Error, Result, asked_for};
use crate::follow::{CONNECTED, Event, FollowTimeouts, Source, follow};
use crate::pages;
use crate::poll::Look;
use crate::refs::named;
use crate::retry::Repeat;
use crate::transport::Client;

/// Which sessions a list holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Leaves out ended sessions.
    pub active_only: bool,
    /// Includes sessions that others share with the caller.
    pub shared: bool,
}

/// Which part of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Only messages below this `seq`. Newest first, also when neither bound is set.
    pub before: Option<i64>,
    /// Only messages above this `seq`, in ascending order.
    pub after: Option<i64>,
    /// 1 to 500; 50 when absent.
    pub limit: Option<u32>,
}

/// The most sessions that a page may have.
const LONGEST_PAGE: u32 = 500;

/// An event of a session's stream.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    Message(Box<Message>),
    /// Metadata, agent state, status or key epoch changed. The event as the service sent it.
    Changed(serde_json::Value),
    /// The newest end of what the agent writes. It has no `seq`, is not stored, and some do not arrive.
    Live(LiveFrame),
}

impl Client {
    /// Creates a session. `false`: a session with this tag or key existed already. See [`crate::idempotency_key`].
    pub async fn create_session(&self, session: &CreateSession, key: &str) -> Result<(Session, bool)> {
        let call = self.post(&["v1", "sessions"], Repeat::Harmless).idempotent(key).json(session);
        named(call.send_created().await?)
    }

    pub async fn session(&self, id: SessionId) -> Result<Session> {
        let session: Session = self.get(&["v1", "sessions", &id.to_string()]).send().await?;
        asked_for(&id, &session.id)?;
        named(session)
    }

    /// The id of the session with this ref.
    pub async fn find_session(&self, session: Ref) -> Result<SessionId> {
        let found: Session = self.get(&["v1", "sessions", session.as_str()]).send().await?;
        asked_for(&session, &Ref::of(&found.id)).map(|()| found.id)
    }

    /// A page of sessions, the most recently changed first. The order of the whole list is that of the minute of the change.
    pub async fn session_page(
        &self,
        filter: SessionFilter,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Result<SessionPage> {
        let call =
            if filter.active_only { self.get(&["v2", "sessions", "active"]) } else { self.get(&["v1", "sessions"]) };
        let call = call.query("include", filter.shared.then_some("shared"));
        let mut page: SessionPage = named(call.query("limit", limit).query("cursor", cursor).send().await?)?;
        page.sessions.sort_by_key(|session| Reverse(session.updated_at));
        Ok(page)
    }

    /// All sessions, the most recently changed first, in the order of [`Client::session_page`]. Pages after the first are long, because an
    /// account may have thousands of sessions.
    pub fn sessions(&self, filter: SessionFilter) -> impl Stream<Item = Result<Session>> + Send + use<> {
        let client = self.clone();
        pages::walk(move |cursor| {
            let client = client.clone();
            async move {
                let limit = cursor.is_some().then_some(LONGEST_PAGE);
                let page = client.session_page(filter, limit, cursor.as_deref()).await?;
                Ok((page.sessions, page.next_cursor))
            }
        })
    }

    /// Changes a session. An update with an expected version is sent once; any other update may be repeated.
    pub async fn update_session(&self, id: SessionId, update: &UpdateSession) -> Result<Session> {
        let guarded = update.expected_version.is_some()
            || update.expected_metadata_version.is_some()
            || update.expected_agent_state_version.is_some()
            || update.expected_key_epoch.is_some();
        let repeat = if guarded { Repeat::Harmful } else { Repeat::Harmless };
        let session: Session = self.patch(&["v1", "sessions", &id.to_string()], repeat).json(update).send().await?;
        asked_for(&id, &session.id)?;
        named(session)
    }

    /// Deletes a session for all users, with its messages, shares and link.
    pub async fn delete_session(&self, id: SessionId) -> Result<()> {
        self.delete(&["v1", "sessions", &id.to_string()]).await
    }

    /// Appends a message. `false`: the sender's `localId` existed already, and the result is the first record.
    pub async fn append_message(&self, session: SessionId, message: &AppendMessage) -> Result<(Message, bool)> {
        let path = ["v3", "sessions", &session.to_string(), "messages"];
        self.post(&path, Repeat::Harmless).json(message).send_created().await
    }

    /// Appends 1 to 200 messages. Either all are stored or none.
    pub async fn append_messages(&self, session: SessionId, messages: Vec<AppendMessage>) -> Result<Vec<Message>> {
        let path = ["v3", "sessions", &session.to_string(), "messages", "batch"];
        let answer: AppendedMessages =
            self.post(&path, Repeat::Harmless).json(&AppendMessages { messages }).send().await?;
        Ok(answer.messages)
    }

    /// Passes 1 to 64 frames on to those who follow the sessions, as the machine that hosts them. Gives the sessions of which frames
    /// were dropped, because there were more than five a second.
    pub async fn send_live_frames(&self, frames: Vec<LiveFrame>) -> Result<Vec<SessionId>> {
        // Not repeated: the next frame says more.
        let sent: LiveFramesSent =
            self.post(&["v3", "sessions", "live"], Repeat::Harmful).json(&LiveFrames { frames }).send().await?;
        Ok(sent.dropped)
    }

    pub async fn message_page(&self, session: SessionId, window: Window) -> Result<MessagePage> {
        let call = self.get(&["v3", "sessions", &session.to_string(), "messages"]);
        call.query("before", window.before).query("after", window.after).query("limit", window.limit).send().await
    }

    /// The history above `after`, oldest first, up to the current end.
    pub fn messages_after(&self, session: SessionId, after: i64) -> impl Stream<Item = Result<Message>> + Send + use<> {
        let client = self.clone();
        let pages = stream::try_unfold(Some(after), move |after| {
            let client = client.clone();
            async move {
                let Some(after) = after else { return Ok(None) };
                let window = Window { after: Some(after), limit: Some(500), before: None };
                let page = client.message_page(session, window).await?;
                let next = page.messages.last().map(|message| message.seq).filter(|_| page.has_more);
                Ok::<_, Error>(Some((page.messages, next)))
            }
        });
        pages.flat_map(|page| match page {
            Ok(messages) => stream::iter(messages.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        })
    }

    /// Follows the session: every message above `after` (only new ones when absent), and changes of the session.
    pub fn follow_session(
        &self,
        session: SessionId,
        after: Option<i64>,
    ) -> impl Stream<Item = Result<SessionEvent>> + Send + use<> {
        follow(self.clone(), source(session, after)).filter_map(|event| async move { read(event).transpose() })
    }

    /// The same for a caller that says when it has no connection: `None` at each connection, and an error as soon as one cannot be
    /// made. When [`Error::is_passing`], the caller waits and calls again with the last `seq` that it has.
    pub fn watch_session(
        &self,
        session: SessionId,
        after: i64,
    ) -> impl Stream<Item = Result<Option<SessionEvent>>> + Send + use<> {
        let timeouts = FollowTimeouts { away: Duration::ZERO, ..FollowTimeouts::default() };
        let source = Source { timeouts, marks_connections: true, ..source(session, Some(after)) };
        follow(self.clone(), source).filter_map(|event| async move {
            match event {
                Ok(event) if event.name == CONNECTED => Some(Ok(None)),
                event => read(event).transpose().map(|event| event.map(Some)),
            }
        })
    }
}

/// The stream of a session.
fn source(session: SessionId, after: Option<i64>) -> Source {
    Source {
        path: ["v3", "sessions", &session.to_string(), "messages", "stream"].map(str::to_owned).to_vec(),
        after: after.map(|seq| seq.to_string()),
        look: Some(Look::Session(session)),
        ..Source::default()
    }
}

fn read(event: Result<Event>) -> Result<Option<SessionEvent>> {
    let event = event?;
    let unreadable = |source| Error::InvalidResponse { call: format!("event {}", event.name), source };
    Ok(match event.name.as_str() {
        "message" => Some(SessionEvent::Message(serde_json::from_str(&event.data).map_err(unreadable)?)),
        "live" => Some(SessionEvent::Live(serde_json::from_str(&event.data).map_err(unreadable)?)),
        "session" => Some(SessionEvent::Changed(serde_json::from_str(&event.data).map_err(unreadable)?)),
        // An event type of a later version.
        _ => None,
    })
}
