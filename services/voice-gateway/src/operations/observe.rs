//! Looking at LiveKit, and taking over what is seen.

use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::{VoicePending, VoiceStatus};

use crate::VoiceGateway;
use crate::domain::observation::Observation;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::Found;

impl VoiceGateway {
    /// Asks LiveKit who is in the session's room. `now` is the database's time, taken before.
    pub(crate) async fn observe(
        &self,
        session: &VoiceSession,
        now: Timestamp,
        budget: Option<Duration>,
    ) -> Result<Option<VoiceSession>, Error> {
        let participants = self.livekit.participants(&session.room_name, budget).await.map_err(Error::RoomService)?;
        if participants.is_empty() && self.is_gone(session, now, budget).await? {
            return Ok(self.store.find(session.id).await?.map(|found| found.session));
        }
        Ok(self.store.observe(session.id, Observation { asked_at: now, participants }).await?)
    }

    /// An unknown room lists as empty: only the list of rooms tells a room that is gone from one in which nobody is.
    async fn is_gone(&self, session: &VoiceSession, now: Timestamp, budget: Option<Duration>) -> Result<bool, Error> {
        let Some(live) = session.state.live() else { return Ok(false) };
        if live.room_created_at.plus(self.store.rules().settle) > now {
            return Ok(false);
        }
        let listed = self.livekit.room(&session.room_name, budget).await.map_err(Error::RoomService)?;
        if listed.is_some_and(|room| room.sid == live.room_sid) {
            return Ok(false);
        }
        self.store.apply(session.id, Event::RoomGone { sid: live.room_sid.clone() }).await?;
        Ok(true)
    }

    /// Everything there is to tell. What has not been confirmed for a while is looked after first, if LiveKit is quick.
    pub(crate) async fn status(&self, found: Found) -> Result<VoiceStatus, Error> {
        let Found { mut session, mut queued, now } = found;
        let fresh = |session: &VoiceSession| session.observed_at.is_some_and(|at| at.plus(self.upkeep.fresh) >= now);
        if session.state.live().is_some() && !fresh(&session) {
            match self.observe(&session, now, Some(self.upkeep.fresh_budget / 2)).await {
                Ok(_) => {
                    if let Some(found) = self.store.find(session.id).await? {
                        (session, queued) = (found.session, found.queued);
                    }
                }
                Err(error) => {
                    tracing::debug!(voice.session = %session.id, %error, "A status was answered from the record")
                }
            }
        }
        let live = session.state.live().is_some() && fresh(&session);
        Ok(status(&session, queued, now, live))
    }

    /// Looks after a session that somebody else found odd.
    pub(crate) async fn look_soon(&self, id: GatewaySessionId) -> Result<(), Error> {
        if let Some(found) = self.store.find(id).await? {
            self.observe(&found.session, found.now, None).await?;
        }
        Ok(())
    }
}

fn status(session: &VoiceSession, queued: u64, now: Timestamp, live: bool) -> VoiceStatus {
    let version = |version: i64| u64::try_from(version).unwrap_or(0);
    VoiceStatus {
        found: true,
        gateway_session_id: session.id,
        session_id: session.session_id.clone(),
        user_id: session.user_id.clone(),
        room_name: session.room_name.clone(),
        state: session.state.name(),
        end_reason: session.state.end().map(|end| end.reason),
        created_at: session.created_at,
        active_at: session.state.active_at(),
        ended_at: session.ended_at(),
        expires_at: session.expires_at,
        duration_seconds: session.duration_seconds(now),
        participants: session.participants(),
        agent: session.agent(),
        pending: VoicePending {
            texts: queued,
            context_version: version(session.context.version),
            delivered_context_version: version(session.context.delivered),
        },
        live,
    }
}
