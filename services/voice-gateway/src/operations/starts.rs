//! Starting a voice session: reserve a record, create the room with its agent, go live, answer with a token.
//!
//! Only the start itself makes its session live, in a transaction that also ends the session which it replaces. Starts of
//! one user are serialised there by a lock. A start that was answered with an error, or whose caller has disconnected,
//! therefore replaces nothing.

use std::sync::Arc;
use std::time::Duration;

use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{StartVoiceSession, VoiceEndReason, VoiceRefusal, VoiceStart};
use tokio::time::{Instant, timeout, timeout_at};

use super::dispatches::AgentCredential;
use super::reservations::{NotReserved, Reservation};
use crate::VoiceGateway;
use crate::absence::Advice;
use crate::clients::livekit::{CallError, NewRoom};
use crate::domain::caller::VoiceCaller;
use crate::domain::session::{NewSession, StartKey, VoiceSession};
use crate::domain::start_token::StartToken;
use crate::domain::state::{Event, Sid, State};
use crate::error::Error;
use crate::store::topic;

/// How long a start that failed waits to record that it failed. After this the timers record it.
const RECORD_FAILURE: Duration = Duration::from_millis(300);

impl VoiceGateway {
    /// Starts a session, counts the outcome, and answers with where to go or why not.
    pub(crate) async fn start(
        &self,
        caller: &VoiceCaller,
        body: StartVoiceSession,
        key: Option<StartKey>,
    ) -> Result<VoiceStart, Error> {
        if !caller.may_act_for(&body.user_id) {
            return Err(Error::OtherUser);
        }
        if let Err(wait) = self.rates.start(caller, &body.user_id) {
            return Ok(VoiceStart { retry_after_seconds: Some(wait), ..self.refuse(VoiceRefusal::RateLimited) });
        }
        let outcome = self.try_start(body, key, caller.token.clone()).await;
        if let Err(Error::Store(_)) = &outcome {
            // It is not known whether the session was recorded. If it was, it ends as a failed start.
            self.metrics.started("database_away");
        }
        outcome
    }

    async fn try_start(
        &self,
        body: StartVoiceSession,
        key: Option<StartKey>,
        token: Option<StartToken>,
    ) -> Result<VoiceStart, Error> {
        if self.livekit.breaker().is_open() {
            self.metrics.started("livekit_away");
            return Err(Error::RoomService(CallError::Open { retry_after: self.livekit.breaker().probe_every() }));
        }
        let context = body.initial_context_payload.as_ref().map(|payload| payload.as_text().to_owned());
        let template = self.plan(body, context.is_some(), token)?;
        if self.absences.advice(&template.agent_name, Instant::now()) == Advice::Wait {
            return Ok(self.refuse(VoiceRefusal::AgentUnavailable));
        }
        let deadline = Instant::now() + self.timing.replay_timeout;
        loop {
            let mut session = template.clone();
            session.name(GatewaySessionId::generate(), &self.rooms.prefix);
            let credential = AgentCredential::generate();
            let inline = context.as_ref().is_some_and(|context| context.len() <= self.delivery.dispatch_inline_max);
            session.context.dispatched(inline);
            let new =
                NewSession { session, context: context.clone(), agent_token: credential.digest(), key: key.clone() };
            match self.reserve(new).await {
                Err(NotReserved::Refused(refusal)) => return Ok(self.refuse(refusal)),
                Err(NotReserved::StartedByUser) => {
                    self.metrics.started("started_by_user");
                    return Err(Error::StartedByUser);
                }
                Err(NotReserved::Store(error)) => return Err(error.into()),
                Ok(Reservation::Mismatch) => return Err(Error::IdempotencyMismatch),
                Ok(Reservation::New(session)) => {
                    return self.open_room(*session, context.as_deref(), &credential).await;
                }
                Ok(Reservation::Replay(id)) => {
                    if let Some(answer) = self.replay(id, &template, deadline).await? {
                        return Ok(answer);
                    }
                    // The first start with this key failed and released the key: try again as the first one.
                }
            }
        }
    }

    /// The session that the caller asked for, without its name.
    fn plan(
        &self,
        body: StartVoiceSession,
        has_context: bool,
        token: Option<StartToken>,
    ) -> Result<VoiceSession, Error> {
        let tool_bridge = match &body.tool_bridge_base_url {
            Some(url) => Some(self.tool_bridge_origins.check(url)?),
            None => self.tool_bridge_default.clone(),
        };
        let agent_name = self.rooms.agent_for(body.language.as_deref()).to_owned();
        Ok(VoiceSession::plan(body, agent_name, tool_bridge, has_context, token))
    }

    /// The session is recorded. If this fails or is cancelled at any point, a timer ends the session and deletes the room.
    async fn open_room(
        &self,
        session: VoiceSession,
        context: Option<&str>,
        credential: &AgentCredential,
    ) -> Result<VoiceStart, Error> {
        let room = NewRoom {
            name: &session.room_name,
            agent_name: &session.agent_name,
            agent_metadata: self.agent_metadata(&session, context, credential).await?,
            empty_timeout: self.rules.human_join,
            departure_timeout: self.rules.human_return,
        };
        match self.livekit.create_room(room).await {
            Ok(sid) => self.enter_room(&session, sid).await,
            Err(error) => {
                tracing::warn!(voice.session = %session.id, %error, "A voice room could not be created");
                self.apply(session.id, Event::StartFailed).await?;
                if error.twirp_code() == Some("resource_exhausted") {
                    return Ok(self.refuse(VoiceRefusal::Capacity));
                }
                self.metrics.started("failed");
                Err(Error::RoomService(error))
            }
        }
    }

    /// The room exists: go live and answer.
    async fn enter_room(&self, session: &VoiceSession, sid: Sid) -> Result<VoiceStart, Error> {
        // Dropped with this future when the client disconnects, and before an error is returned.
        let caller = Arc::new(());
        let outcome = self.go_live(session, sid, Arc::downgrade(&caller)).await;
        drop(caller);
        match outcome {
            Ok(Some(live)) => {
                self.metrics.started("allowed");
                tracing::info!(voice.session = %live.id, agent = live.agent_name, "Opened a voice room");
                self.admit(&live)
            }
            Ok(None) => {
                // The session ended before its room existed, so nothing else deletes the room.
                self.started_rooms.report(session.room_name.clone());
                self.metrics.started("over");
                Err(Error::SessionOver)
            }
            Err(error) => {
                // The commit may have happened although its answer was lost. End the session before the caller
                // learns that the start failed, if the database allows it.
                let failed = timeout(RECORD_FAILURE, self.apply(session.id, Event::StartFailed)).await;
                tracing::debug!(voice.session = %session.id, recorded = matches!(failed, Ok(Ok(_))), "A start failed");
                Err(error)
            }
        }
    }

    /// The answer to a repeated start. `None`: the first one has failed.
    async fn replay(
        &self,
        id: GatewaySessionId,
        asked: &VoiceSession,
        deadline: Instant,
    ) -> Result<Option<VoiceStart>, Error> {
        let mut changes = self.db.notifier().subscribe(topic(id));
        loop {
            let Some(found) = self.find(id).await? else { return Err(Error::Unknown("allowed")) };
            if found.session.is_kept_from(asked) {
                return Err(Error::StartedByUser);
            }
            match &found.session.state {
                State::Live(_) => {
                    self.metrics.started("replayed");
                    return self.admit(&found.session).map(Some);
                }
                State::Ending { end, .. } | State::Over { end } if end.reason == VoiceEndReason::StartFailed => {
                    return Ok(None);
                }
                State::Ending { .. } | State::Over { .. } => return Err(Error::SessionOver),
                State::Creating { .. } => {}
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return Err(Error::InFlight);
            }
        }
    }

    /// The answer to an accepted start, with a fresh token. The token's lifetime is counted by this machine's clock.
    fn admit(&self, session: &VoiceSession) -> Result<VoiceStart, Error> {
        let ttl = session.expires_at.since(self.clock.now());
        let token = self
            .livekit_key
            .for_human(&session.room_name, &session.human_identity, ttl)
            .map_err(|error| Error::RoomService(error.into()))?;
        Ok(VoiceStart {
            allowed: true,
            reason: None,
            retry_after_seconds: None,
            gateway_session_id: Some(session.id),
            room_name: Some(session.room_name.clone()),
            room_url: Some(self.livekit_ws_url.clone()),
            participant_identity: Some(session.human_identity.clone()),
            agent_identity: Some(session.agent_identity()),
            participant_token: Some(token),
            expires_at: Some(session.expires_at),
        })
    }

    fn refuse(&self, reason: VoiceRefusal) -> VoiceStart {
        self.metrics.started(match reason {
            VoiceRefusal::RateLimited => "rate_limited",
            VoiceRefusal::UserSessions => "user_sessions",
            VoiceRefusal::TotalSessions => "total_sessions",
            VoiceRefusal::UserDailySeconds => "user_daily_seconds",
            VoiceRefusal::TotalDailySeconds => "total_daily_seconds",
            VoiceRefusal::Capacity => "capacity",
            VoiceRefusal::AgentUnavailable => "agent_unavailable",
        });
        VoiceStart {
            allowed: false,
            reason: Some(reason),
            retry_after_seconds: None,
            gateway_session_id: None,
            room_name: None,
            room_url: None,
            participant_identity: None,
            agent_identity: None,
            participant_token: None,
            expires_at: None,
        }
    }
}
