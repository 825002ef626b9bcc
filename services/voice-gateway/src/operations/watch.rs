//! The watchdog: an agent that has not come, or has gone, is sent for again.

use ensemble_types::time::Timestamp;

use super::start::AgentCredential;
use crate::VoiceGateway;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, Human};
use crate::error::Error;

impl VoiceGateway {
    /// Looks first, because each dispatch brings one more agent; and only one replica may look, so that two that come at the
    /// same moment send for one agent.
    pub(crate) async fn watch(&self, session: &VoiceSession, now: Timestamp) -> Result<(), Error> {
        let Some((session, true)) = self.store.apply(session.id, Event::WatchBegun).await? else { return Ok(()) };
        // LiveKit that cannot be seen is no attempt used up: the watchdog looks again later.
        let Some(seen) = self.observe(&session, now, None).await? else { return Ok(()) };
        let Some(live) = seen.state.live().filter(|live| live.agent.is_awaited()) else { return Ok(()) };
        if matches!(live.human, Human::Away { .. }) {
            // Nobody is there to talk to; the agent's own leaving is often what follows from that.
            return Ok(());
        }
        if live.redispatches >= self.store.rules().max_dispatches {
            tracing::warn!(voice.session = %session.id, agent = session.agent_name, "No agent came");
            self.store.apply(session.id, Event::AgentUnavailable).await?;
            return Ok(());
        }
        self.dispatch_again(&seen).await
    }

    async fn dispatch_again(&self, session: &VoiceSession) -> Result<(), Error> {
        let credential = AgentCredential::generate();
        let again = self.store.redispatch(session.id, credential.digest(), self.delivery.dispatch_inline_max).await?;
        let Some((session, context)) = again else { return Ok(()) };
        self.metrics.redispatched();
        tracing::info!(voice.session = %session.id, agent = session.agent_name, "Sending for an agent again");
        let metadata = self.agent_metadata(&session, context.as_deref(), &credential)?;
        if let Err(error) = self.livekit.delete_idle_dispatches(&session.room_name).await {
            // At worst a worker that registers late takes the old one, too; the newest agent is the one that is spoken to.
            tracing::debug!(voice.session = %session.id, %error, "Old dispatches could not be taken back");
        }
        self.livekit
            .create_dispatch(&session.room_name, &session.agent_name, metadata)
            .await
            .map_err(Error::RoomService)
    }
}
