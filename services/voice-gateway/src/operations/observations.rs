//! Asking LiveKit who is in a session's room, and applying the differences to the record.

use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;

use crate::VoiceGateway;
use crate::domain::observation::Observation;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, Refused};
use crate::error::Error;

impl VoiceGateway {
    /// `now` is the database's time, read before this call. Gives the session as it is afterwards.
    pub(super) async fn observe(
        &self,
        session: &VoiceSession,
        now: Timestamp,
        budget: Option<Duration>,
    ) -> Result<Option<VoiceSession>, Error> {
        let participants = self.livekit.participants(&session.room_name, budget).await.map_err(Error::RoomService)?;
        if participants.is_empty() && self.is_gone(session, now, budget).await? {
            return Ok(self.find(session.id).await?.map(|found| found.session));
        }
        self.apply_observation(session.id, Observation { asked_at: now, participants }).await
    }

    /// Observes a session in which another operation found a contradiction.
    pub(super) async fn observe_now(&self, id: GatewaySessionId) -> Result<(), Error> {
        if let Some(found) = self.find(id).await? {
            self.observe(&found.session, found.now, None).await?;
        }
        Ok(())
    }

    /// An unknown room has an empty list of participants. Only the list of rooms tells a deleted room from an empty one.
    async fn is_gone(&self, session: &VoiceSession, now: Timestamp, budget: Option<Duration>) -> Result<bool, Error> {
        let Some(live) = session.state.live() else { return Ok(false) };
        if live.room_created_at.plus(self.rules.settle) > now {
            return Ok(false);
        }
        let listed = self.livekit.room(&session.room_name, budget).await.map_err(Error::RoomService)?;
        if listed.is_some_and(|room| room.sid == live.room_sid) {
            return Ok(false);
        }
        self.apply(session.id, Event::RoomGone { sid: live.room_sid.clone() }).await?;
        Ok(true)
    }

    async fn apply_observation(&self, id: GatewaySessionId, seen: Observation) -> Result<Option<VoiceSession>, Error> {
        let rules = self.rules.clone();
        let observed = self
            .change("observe a voice session", id, move |_, stored, now| {
                for event in stored.session.differences(&seen, &rules) {
                    // An event may be refused because the one before it has settled the difference.
                    let _: Result<(), Refused> = stored.session.apply(event, now, &rules);
                }
                stored.session.observed_at = stored.session.observed_at.max(Some(seen.asked_at));
                Ok(())
            })
            .await?;
        Ok(observed.map(|change| change.transition.after))
    }
}
