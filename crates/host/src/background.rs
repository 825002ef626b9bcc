//! What a session does in the background of its steps, and how it rests when it has ended.

use std::sync::Arc;
use std::time::Duration;

use ensemble_process::disk::on_disk;
use ensemble_types::ids::SessionId;
use ensemble_types::runs::Provider;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::core::Asked;
use super::deliver::Delivered;
use super::kept::Change;
use super::receive::Received;
use super::session::Session;
use super::{deliver, receive, rest, status};

/// Between two live frames of a session: five a second.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);
/// Frames that take longer than this are not waited for.
const FRAME_WITHIN: Duration = Duration::from_secs(2);

impl Session {
    /// Sends what the session says.
    pub(super) fn deliver(&self, deliveries: mpsc::Sender<Delivered>) -> impl Future<Output = ()> + use<> {
        let of = (self.host.clone(), self.keys.clone(), self.id);
        let at_server = (self.core.kept.confirmed(), self.at_server);
        deliver::run(of, self.outbox.clone(), at_server, self.behind.subscribe(), deliveries)
    }

    /// Reads what people send, after what was dealt with.
    pub(super) fn read(&self, tasks: &mut JoinSet<()>, beat: &Arc<Notify>) -> (AbortHandle, mpsc::Receiver<Received>) {
        let (send, received) = mpsc::channel(1);
        let wakers = (self.grants.subscribe(), self.runs.subscribe(), self.host.wakers.of(self.id), beat.clone());
        let after = self.core.kept.seen;
        (tasks.spawn(receive::run(self.host.clone(), self.keys.clone(), self.id, after, wakers, send)), received)
    }

    /// Reports the session's state to the server, until another process hosts it.
    pub(super) fn beat(&self, beat: Arc<Notify>) -> impl Future<Output = ()> + use<> {
        status::run(self.host.clone(), self.keys.clone(), self.id, self.status.subscribe(), beat)
    }

    /// Shows the tasks of the session what is on disk now.
    pub(super) fn show(&self, changes: &[Change]) {
        if changes.iter().any(|change| matches!(change, Change::Access(_))) {
            self.grants.send_replace(self.core.kept.access.clone());
        }
        if changes.iter().any(|change| matches!(change, Change::Behind(_))) {
            self.behind.send_replace(self.core.kept.behind.clone());
        }
    }

    /// Whether nothing is left to be done or said until a person continues the session.
    pub(super) fn may_rest(&self) -> bool {
        let has_ended = self.core.kept.ended && !self.core.runs();
        // It is deleted soon, which a session that rests does not notice.
        let is_demo = self.core.kept.agent == Provider::DEMO;
        let is_behind = self.core.kept.behind.as_ref().is_some_and(|behind| behind.upto.is_some());
        has_ended && !is_demo && !is_behind && self.outbox.is_empty() && self.core.kept.unsent.is_empty()
    }

    /// When it rests. Until then its own last messages are read, so that nothing is left to be dealt with.
    pub(super) fn rests_later(&self) -> Instant {
        self.host.wakers.wake(self.id);
        Instant::now() + self.host.settings.timing.rest_after
    }

    /// Leaves the session to rest. Returns its id if it is to be hosted again at once, because a person has just written to it.
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
        // A hint may have come a moment before. Without an answer of the server the next connection shows it.
        let newest = self.host.client.session(id).await.map(|session| session.last_seq);
        newest.is_ok_and(|newest| newest > seen).then_some(id)
    }

    /// Finds the signer of a prompt in the newest lists.
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
