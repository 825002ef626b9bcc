//! Sessions that have ended rest: nothing of this process hosts them, and a start asks the server nothing about each. One is hosted
//! again when a person has written to it, which hints say, and after a loss of these the server's list of what has changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use ensemble_client::{Error, SessionFilter};
use ensemble_process::disk::{on_disk, replace};
use ensemble_types::ids::SessionId;
use ensemble_types::time::Timestamp;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::Host;

/// In the folder of a session that rests: the `seq` of the last message that was dealt with.
const MARK: &str = "rests";
/// Next to the folder of the sessions: until when the server's list was looked through, by the server's clock.
const LOOKED: &str = "looked.json";
/// Lists are ordered by the minute.
const ORDERED_BY: Duration = Duration::from_secs(120);
/// The mark of a session in which no message was dealt with.
const NOTHING: i64 = -1;
/// How long a task waits for its session to be hosted. One that another process seems to host is tried again within it.
const HOSTED_WITHIN: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

fn path(sessions: &Path, session: SessionId) -> PathBuf {
    sessions.join(session.to_string()).join(MARK)
}

/// The session rests from now on.
pub(super) fn mark(sessions: &Path, session: SessionId, seen: i64) -> io::Result<()> {
    replace(&path(sessions, session), &seen)
}

/// The last message that was dealt with, if the session rests.
pub(super) fn marked(sessions: &Path, session: SessionId) -> Option<i64> {
    serde_json::from_slice(&fs::read(path(sessions, session)).ok()?).ok()
}

/// The session is to be hosted again. False: it did not rest.
pub(super) fn unmark(sessions: &Path, session: SessionId) -> bool {
    fs::remove_file(path(sessions, session)).is_ok()
}

impl Host {
    /// A person may have written to the session.
    pub(super) async fn wake(&self, session: SessionId) {
        if !self.wakers.wake(session) && marked(&self.sessions, session).is_some() {
            // Without a receiver the host is ending, and the next one looks.
            let _ = self.rested.send(session).await;
        }
    }

    /// Hosts a session as soon as the server says that it has it, and forgets it when the server says that it has not.
    pub(super) async fn host_when_made(&self, session: SessionId) {
        let sessions = self.sessions.clone();
        match on_disk(move || mark(&sessions, session, NOTHING)).await {
            Ok(()) => drop(self.rested.send(session).await),
            Err(error) => tracing::warn!("Session {session} is hosted after the next start: {error}"),
        }
    }

    /// Everything may have changed.
    pub(super) async fn wake_all(&self) -> Result<(), Error> {
        self.wakers.wake_all();
        let path = self.sessions.with_file_name(LOOKED);
        let until: Option<Timestamp> = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut newest = None;
        let mut changed = pin!(self.client.sessions(SessionFilter { active_only: false, shared: false }));
        while let Some(session) = changed.next().await {
            let session = session?;
            let newest = *newest.get_or_insert(session.updated_at);
            // The list of a server that was restored ends before what was looked through.
            if until.is_some_and(|until| newest >= until && session.updated_at.plus(ORDERED_BY) < until) {
                break;
            }
            if marked(&self.sessions, session.id).is_some_and(|seen| session.last_seq != seen) {
                let _ = self.rested.send(session.id).await;
            }
        }
        if let Some(newest) = newest
            && let Err(error) = on_disk(move || replace(&path, &newest)).await
        {
            tracing::warn!("The next start looks through all sessions: {error}");
        }
        Ok(())
    }

    /// Waits until a session is hosted: one that rests is asked for, and one of an earlier process may not be open yet.
    pub(super) async fn host_again(&self, session: SessionId) {
        if marked(&self.sessions, session).is_some() && self.rested.send(session).await.is_err() {
            return;
        }
        let deadline = Instant::now() + HOSTED_WITHIN;
        while !self.hosted.has(session) && Instant::now() < deadline {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}
