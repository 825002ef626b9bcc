//! What an open stream reads each time it wakes: its reader's standing, what is new in the session, and the next messages.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, on};
use ensemble_types::ids::{SessionId, UserId};
use tokio::time::Instant;

use super::history::{self, Audience, Head, SessionStamp};
use super::schema::sessions;
use super::tail::Tail;
use super::{Store, links};
use crate::domain::history::Window;
use crate::domain::link::TokenHash;
use crate::error::Error;

/// Who watches.
#[derive(Clone)]
pub(crate) enum Watcher {
    Member(UserId),
    Viewer { link: TokenHash, view_token: String },
}

/// Where a stream is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The last message that was sent.
    pub(crate) seq: i64,
    /// The session as it was last told.
    pub(crate) stamp: SessionStamp,
}

/// What there is to send.
pub(crate) enum Step {
    /// Frames of events (nothing when nothing is new), the place after them, and whether there is more at once.
    Go {
        frames: Bytes,
        place: Place,
        more: bool,
    },
    End(EndReason),
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    AccessRevoked,
    SessionDeleted,
}

/// How many messages go out together.
const STEP: i64 = 200;

impl Store {
    /// Where a stream begins that asked for nothing in particular: with what comes next.
    pub(crate) async fn stream_start(
        &self,
        session: SessionId,
        watcher: Watcher,
        after: Option<i64>,
    ) -> Result<Place, Error> {
        self.db
            .read("open a stream", move |c| {
                let window = Window { after: Some(i64::MAX - 1), before: None, limit: 1 };
                let head = history::read(c, session, watcher.member(), window, |_| {})?;
                watcher.check(c, &head)?;
                Ok(Place { seq: after.unwrap_or(head.last_seq), stamp: head.stamp })
            })
            .await
    }

    /// What is next for one stream.
    pub(crate) async fn stream_step(&self, session: SessionId, watcher: Watcher, place: Place) -> Result<Step, Error> {
        let store = self.clone();
        self.db
            .read("feed a stream", move |c| match store.step(c, session, &watcher, place) {
                Err(Error::Refused(_) | Error::LinkNotFound) => Ok(Step::End(why(c, session)?)),
                step => step,
            })
            .await
    }

    /// The same for a stream that waited at the end and was woken, together with the others that were.
    pub(crate) async fn stream_woken(
        &self,
        tail: &Tail,
        session: SessionId,
        watcher: Watcher,
        place: Place,
        woken: Instant,
    ) -> Result<Step, Error> {
        if let Watcher::Member(user) = watcher
            && let Ok(reading) = self.tail_reading(tail, session, place.seq, woken).await
            && let Ok((next, more)) = reading.seen_by(user)
            && next.stamp == place.stamp
        {
            return Ok(Step::Go { frames: reading.frames.clone(), place: next, more });
        }
        // Whatever is special about this stream, it finds out for itself.
        self.stream_step(session, watcher, place).await
    }

    /// Where the members' streams of a session wait.
    pub(crate) fn tail(&self, session: SessionId) -> Arc<Tail> {
        self.tails.of(session)
    }

    fn step(&self, c: &mut Conn, session: SessionId, watcher: &Watcher, place: Place) -> Result<Step, Error> {
        let mut frames = String::new();
        let head = read_frames(c, &mut frames, session, watcher.member(), place.seq, watcher.audience())?;
        watcher.check(c, &head)?;
        if head.stamp != place.stamp {
            let session = match watcher {
                Watcher::Member(user) => serde_json::to_string(&self.read_in(c, session, *user)?),
                Watcher::Viewer { .. } => serde_json::to_string(&links::public_session(c, session)?),
            };
            frames.push_str("event: session\ndata: ");
            frames.push_str(&session.unwrap_or_default());
            frames.push_str("\n\n");
        }
        let seq = head.span.map_or(place.seq, |(_, highest)| highest);
        let more = seq < head.last_seq && head.span.is_some();
        Ok(Step::Go { frames: frames.into(), place: Place { seq, stamp: head.stamp }, more })
    }
}

/// Writes the next messages as frames of events. Whoever gets them is judged by what this returns.
pub(super) fn read_frames(
    c: &mut Conn,
    frames: &mut String,
    session: SessionId,
    caller: Option<UserId>,
    after: i64,
    audience: Audience,
) -> Result<Head, Error> {
    let window = Window { after: Some(after), before: None, limit: STEP };
    frames.clear();
    history::read(c, session, caller, window, |message| {
        let _ = write!(frames, "id: {}\nevent: message\ndata: ", message.seq);
        message.write(frames, audience);
        frames.push_str("\n\n");
    })
}

impl Watcher {
    fn member(&self) -> Option<UserId> {
        match self {
            Self::Member(user) => Some(*user),
            Self::Viewer { .. } => None,
        }
    }

    fn audience(&self) -> Audience {
        match self {
            Self::Member(_) => Audience::Members,
            Self::Viewer { .. } => Audience::Public,
        }
    }

    /// Members are judged by what was read with the messages; viewers by their link, read after them.
    fn check(&self, c: &mut Conn, head: &Head) -> Result<(), Error> {
        match self {
            Self::Member(user) => head.access(*user).map(|_| ()),
            Self::Viewer { link, view_token } => links::still_viewing(c, *link, view_token).map(|_| ()),
        }
    }
}

fn why(c: &mut Conn, session: SessionId) -> Result<EndReason, Error> {
    let there: i64 = on!(c, |c| sessions::table
        .filter(sessions::id.eq(session.db()).and(sessions::deleted_at.is_null()))
        .count()
        .get_result(c))?;
    Ok(if there == 0 { EndReason::SessionDeleted } else { EndReason::AccessRevoked })
}

impl EndReason {
    /// As the last event says it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AccessRevoked => "access_revoked",
            Self::SessionDeleted => "session_deleted",
        }
    }
}
