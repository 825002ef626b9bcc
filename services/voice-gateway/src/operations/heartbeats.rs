//! Agents that have died, before LiveKit notices: it lists a participant whose process was killed for 15 to 20 s.
//!
//! Heartbeats alone do not prove it. They also stop when the gateway is down or the agent cannot reach it, while the conversation
//! continues. So an agent whose heartbeats have stopped is asked over LiveKit, and counts as lost when it does not answer there either.

use crate::VoiceGateway;
use crate::domain::packet::ALIVE_METHOD;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Agent, Event};
use crate::error::Error;

impl VoiceGateway {
    pub(super) async fn probe(&self, session: &VoiceSession) -> Result<(), Error> {
        let Some((session, true)) = self.apply(session.id, Event::ProbeBegun).await? else { return Ok(()) };
        let Some(Agent::Ready { identity, sid, beat_by: Some(expected), .. }) =
            session.state.live().map(|live| live.agent.clone())
        else {
            return Ok(());
        };
        let asked = self.livekit.perform_rpc(&session.room_name, &identity, ALIVE_METHOD, "{}".to_owned()).await;
        let Err(error) = asked else { return Ok(()) };
        match error.twirp_code() {
            // No acknowledgement, no answer, or no such participant.
            Some("canceled" | "not_found") => {
                if let Some((_, true)) = self.apply(session.id, Event::AgentSilent { sid, expected }).await? {
                    self.metrics.agent_was_silent();
                    tracing::warn!(voice.session = %session.id, "An agent has died; another one is dispatched");
                }
            }
            // It answers that it has no such method, or LiveKit cannot be asked: LiveKit's own word is waited for.
            _ => tracing::debug!(voice.session = %session.id, %error, "An agent sends no heartbeats and is left alone"),
        }
        Ok(())
    }
}
