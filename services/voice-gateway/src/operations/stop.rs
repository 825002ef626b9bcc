//! Ending a voice session: the state first, then the room.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{VoiceState, VoiceStop};

use crate::VoiceGateway;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;

impl VoiceGateway {
    /// Ends the session and waits a moment for its room to go. One that is unknown, or over, is ended.
    pub(crate) async fn stop(&self, id: Option<GatewaySessionId>) -> Result<VoiceStop, Error> {
        let Some(id) = id else { return Ok(unknown()) };
        let Some((session, ended_now)) = self.store.end(id, Event::StopRequested).await? else { return Ok(unknown()) };
        if !ended_now {
            return Ok(stopped(&session));
        }
        match self.livekit.delete_room_within(&session.room_name, self.upkeep.stop_budget).await {
            Ok(()) => {
                let gone = self.store.apply(id, Event::RoomDeleted).await?;
                Ok(stopped(&gone.map_or(session, |(session, _)| session)))
            }
            Err(error) => {
                tracing::warn!(voice.session = %id, %error, "A room could not be deleted yet; the sweeper goes on");
                Ok(stopped(&session))
            }
        }
    }
}

fn stopped(session: &VoiceSession) -> VoiceStop {
    VoiceStop {
        success: true,
        state: session.state.name(),
        end_reason: session.state.end().map(|end| end.reason),
        duration_seconds: session.ended_at().map_or(0, |at| session.duration_seconds(at)),
    }
}

fn unknown() -> VoiceStop {
    VoiceStop { success: true, state: VoiceState::Stopped, end_reason: None, duration_seconds: 0 }
}
