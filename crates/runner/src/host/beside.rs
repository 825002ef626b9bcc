//! What a session has done beside its steps while it goes on, and how it is left when it has ended.

use std::time::Duration;

use ensemble_types::ids::SessionId;
use tokio::time::Instant;

use super::core::Asked;
use super::session::Session;
use super::{deliver, receive, rest};
use ensemble_process::disk::on_disk;

/// Between two live frames of a session: five a second.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);
/// Frames that take longer than this are not waited for.
const FRAME_WITHIN: Duration = Duration::from_secs(2);

impl Session {
    /// Nothing is to be done or said, until somebody goes on with the session.
    pub(super) fn may_rest(&self) -> bool {
        let has_ended = self.core.kept.ended && !self.core.runs();
        has_ended && self.outbox.is_empty() && self.core.kept.unsent.is_empty()
    }

    /// When it rests. Until then its own last messages are read, so that nothing is left to be dealt with.
    pub(super) fn rests_later(&self) -> Instant {
        self.host.wakers.wake(self.id);
        Instant::now() + self.host.config.timing.rest_after
    }

    /// Leaves the session to rest. Returns its id if it is to be hosted again at once: somebody has just written to it.
    pub(super) async fn rest(self) -> Option<SessionId> {
        let (folder, id, seen) = (self.host.sessions.clone(), self.id, self.core.kept.seen);
        let marked = on_disk(move || rest::mark(&folder, id, seen)).await;
        self.host.wakers.forget(id);
        self.host.hosted.remove(id, &self.task);
        if let Err(error) = marked {
            tracing::warn!(session.id = %id, "A session that has ended stays, because that cannot be written down: {error}");
            return Some(id);
        }
        tracing::info!(session.id = %id, "A session that has ended is not hosted any more");
        // A hint may have come a moment before. Without an answer of the server the next connection tells.
        let newest = self.host.client.session(id).await.map(|session| session.last_seq);
        newest.is_ok_and(|newest| newest > seen).then_some(id)
    }

    /// Finds who has signed a prompt, in the newest lists.
    pub(super) fn judge(&mut self, asked: Asked) {
        let (host, id, list) = (self.host.clone(), self.id, self.core.list().clone());
        let grant = self.core.kept.access.iter().find(|grant| grant.user == asked.user).cloned();
        self.judges.spawn(async move {
            let who = (asked.user, asked.key.as_str());
            let found = receive::find_signer(&host, id, who, grant.as_ref(), &list).await;
            (asked, found)
        });
    }

    pub(super) fn send_frames(&mut self) {
        let frames = self.core.frames();
        let (host, keys, id) = (self.host.clone(), self.keys.clone(), self.id);
        self.next_frame = Instant::now() + BETWEEN_FRAMES;
        self.frames.spawn(async move {
            let sent = deliver::send_frames(&host, &keys, id, frames);
            if let Ok(Err(error)) = tokio::time::timeout(FRAME_WITHIN, sent).await {
                tracing::debug!(session.id = %id, "Live frames were not sent: {error}");
            }
        });
    }
}
