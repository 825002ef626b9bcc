//! Ends voice sessions whose start came with a token that is refused now: it was revoked, or its device was removed.

use ensemble_chassis::KeySource;

use crate::VoiceGateway;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::sessions;

impl VoiceGateway {
    /// Their time is over before `expiresAt`: they end as `expired`, and their rooms are deleted.
    pub(crate) async fn end_refused(&self) -> Result<(), Error> {
        // While the keys cannot be fetched, it is unknown which devices were removed since.
        let Ok(keys) = self.keys.current() else { return Ok(()) };
        let open = self.db.read("list open voice sessions", sessions::open).await?;
        for session in open.iter().filter(|session| session.is_refused(&keys)) {
            tracing::info!(voice.session = %session.id, "The token that started a voice session is refused");
            self.apply(session.id, Event::Expired).await?;
        }
        Ok(())
    }
}
