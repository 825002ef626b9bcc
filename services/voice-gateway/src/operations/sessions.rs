//! Finding a session, its status, and stopping it.

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::{VoicePending, VoiceState, VoiceStatus, VoiceStop};
use ensemble_types::voice_history::VoiceError;

use crate::VoiceGateway;
use crate::domain::caller::VoiceCaller;
use crate::domain::session::VoiceSession;
use crate::domain::state::Event;
use crate::error::Error;
use crate::store::sessions;

/// A session as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) session: VoiceSession,
    /// Texts that have not reached the agent.
    pub(crate) queued: u64,
    /// The database's time of reading.
    pub(crate) now: Timestamp,
}

impl VoiceGateway {
    pub(super) async fn find(&self, id: GatewaySessionId) -> Result<Option<Found>, Error> {
        let found = self.db.read("read a voice session", move |c| sessions::read(c, id)).await?;
        Ok(found.map(|(stored, now)| {
            let queued = u64::try_from(stored.queued).unwrap_or(0);
            Found { session: stored.session, queued, now }
        }))
    }

    /// The session, if the caller may know that it exists.
    pub(super) async fn find_visible(&self, caller: &VoiceCaller, id: &str) -> Result<Option<Found>, Error> {
        let Ok(id) = id.parse::<GatewaySessionId>() else { return Ok(None) };
        Ok(self.find(id).await?.filter(|found| caller.may_act_for(&found.session.user_id)))
    }

    /// The status. LiveKit is asked first when it has not confirmed the session for a while and answers quickly.
    pub(crate) async fn status(&self, caller: &VoiceCaller, id: &str) -> Result<VoiceStatus, Error> {
        let Found { mut session, mut queued, now } =
            self.find_visible(caller, id).await?.ok_or(Error::Unknown("found"))?;
        if session.state.live().is_some() && !self.is_fresh(&session, now) {
            match self.observe(&session, now, Some(self.timing.fresh_budget / 2)).await {
                Ok(_) => {
                    if let Some(found) = self.find(session.id).await? {
                        (session, queued) = (found.session, found.queued);
                    }
                }
                Err(error) => {
                    tracing::debug!(voice.session = %session.id, %error, "A status was answered from the record")
                }
            }
        }
        let live = session.state.live().is_some() && self.is_fresh(&session, now);
        Ok(status(&session, queued, now, live, caller.user.is_some()))
    }

    /// Whether LiveKit confirmed the session lately.
    pub(super) fn is_fresh(&self, session: &VoiceSession, now: Timestamp) -> bool {
        session.observed_at.is_some_and(|at| at.plus(self.timing.fresh) >= now)
    }

    /// Ends the session and waits a moment for its room to be deleted. A session that is unknown to the caller counts as
    /// stopped.
    pub(crate) async fn stop(&self, caller: &VoiceCaller, id: &str) -> Result<VoiceStop, Error> {
        let Some(found) = self.find_visible(caller, id).await? else { return Ok(unknown()) };
        let id = found.session.id;
        let Some((session, ended_now)) = self.end(id, Event::StopRequested).await? else { return Ok(unknown()) };
        if !ended_now {
            return Ok(stopped(&session));
        }
        match self.livekit.delete_room_within(&session.room_name, self.timing.stop_budget).await {
            Ok(()) => {
                let gone = self.apply(id, Event::RoomDeleted).await?;
                Ok(stopped(&gone.map_or(session, |(session, _)| session)))
            }
            Err(error) => {
                tracing::warn!(voice.session = %id, %error, "A room could not be deleted yet; the timers try again");
                Ok(stopped(&session))
            }
        }
    }

    /// Ends a session, and counts the first attempt to delete its room, which the caller is about to make.
    async fn end(&self, id: GatewaySessionId, event: Event) -> Result<Option<(VoiceSession, bool)>, Error> {
        let rules = self.rules.clone();
        let ended = self
            .change("end a voice session", id, move |_, stored, now| {
                let ended = stored.session.apply(event.clone(), now, &rules).is_ok();
                Ok(ended && stored.session.apply(Event::DeleteBegun, now, &rules).is_ok())
            })
            .await?;
        Ok(ended.map(|change| (change.transition.after, change.result)))
    }
}

/// `for_user`: the session's user reads it, and not only an application.
pub(super) fn status(session: &VoiceSession, queued: u64, now: Timestamp, live: bool, for_user: bool) -> VoiceStatus {
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
        last_error: session.last_error.clone().map(|error| VoiceError {
            code: error.code,
            message: error.message.filter(|_| for_user),
            at: error.at,
        }),
        tool_calls: u64::try_from(session.tool_calls).unwrap_or(0),
        live,
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
