//! What a session has done beside its steps: it goes on meanwhile.

use std::time::Duration;

use tokio::time::Instant;

use super::core::Asked;
use super::session::Session;
use super::{deliver, receive};

/// Between two live frames of a session: five a second.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);
/// Frames that take longer than this are not waited for.
const FRAME_WITHIN: Duration = Duration::from_secs(2);

impl Session {
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
