//! Starting a voice session: record, room with agent, token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::time::Timestamp;
use ensemble_types::voice::{StartVoiceSession, VoiceEndReason, VoiceRefusal, VoiceStart};
use rand::RngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use crate::VoiceGateway;
use crate::clients::livekit::{CallError, NewRoom};
use crate::domain::context::ContextMarks;
use crate::domain::dispatch::{Credentials, metadata};
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, State};
use crate::error::Error;
use crate::store::{NewSession, Opened, Recorded, StartKey};

/// Of the session's id, so much goes into the person's identity in the room.
const SHORT_ID: usize = 12;

impl VoiceGateway {
    /// Makes a session, counts what became of it, and answers with the seven fields.
    pub(crate) async fn start(&self, body: StartVoiceSession, key: Option<StartKey>) -> Result<VoiceStart, Error> {
        let outcome = self.try_start(body, key).await;
        if let Err(Error::Store(_)) = &outcome {
            // Whether it was recorded nobody knows; if it was, it ends as one that failed.
            self.metrics.started("database_away");
        }
        outcome
    }

    async fn try_start(&self, body: StartVoiceSession, key: Option<StartKey>) -> Result<VoiceStart, Error> {
        if self.livekit.breaker().is_open() {
            self.metrics.started("livekit_away");
            return Err(Error::RoomService(CallError::Open { retry_after: self.livekit.breaker().probe_every() }));
        }
        let context = body.initial_context_payload.as_ref().map(|payload| payload.as_text().to_owned());
        let template = self.plan(body, context.is_some())?;
        let deadline = Instant::now() + self.upkeep.replay_timeout;
        loop {
            let mut session = template.clone();
            self.name(&mut session, GatewaySessionId::generate());
            let credential = AgentCredential::generate();
            let inline = context.as_ref().is_some_and(|context| context.len() <= self.delivery.dispatch_inline_max);
            session.context.dispatched(inline);
            let new =
                NewSession { session, context: context.clone(), agent_token: credential.digest(), key: key.clone() };
            match self.store.open(new, self.limits.clone()).await? {
                Opened::Refused(refusal) => return Ok(self.refuse(refusal)),
                Opened::Mismatch => return Err(Error::IdempotencyMismatch),
                Opened::New(new) => return self.make_room(*new, context.as_deref(), &credential).await,
                Opened::Replay(id) => {
                    if let Some(answer) = self.replay(id, deadline).await? {
                        return Ok(answer);
                    }
                    // The start that came first has failed, and took its key along.
                }
            }
        }
    }

    /// The session as the caller wants it, without its name.
    fn plan(&self, body: StartVoiceSession, has_context: bool) -> Result<VoiceSession, Error> {
        let tool_bridge = match body.tool_bridge_base_url {
            Some(url) => Some(self.tool_bridge_origins.check(&url)?),
            None => self.tool_bridge_default.clone(),
        };
        let language = body.language.map(|language| language.into_string()).filter(|language| !language.is_empty());
        let epoch = Timestamp::from_micros(0);
        Ok(VoiceSession {
            id: GatewaySessionId::generate(),
            user_id: body.user_id.into_string(),
            session_id: body.session_id.into_string(),
            agent_name: self.rooms.agent_for(language.as_deref()).to_owned(),
            language,
            welcome_message: body.welcome_message.map(|text| text.into_string()).filter(|text| !text.is_empty()),
            tool_bridge,
            room_name: String::new(),
            human_identity: String::new(),
            state: State::Creating { give_up_at: epoch },
            created_at: epoch,
            expires_at: epoch,
            observed_at: None,
            agent_state: None,
            context: ContextMarks { version: i64::from(has_context), ..ContextMarks::default() },
        })
    }

    /// A room's name is never used twice: LiveKit may take a while to forget one.
    fn name(&self, session: &mut VoiceSession, id: GatewaySessionId) {
        let simple = id.to_string().replace('-', "");
        session.id = id;
        session.room_name = format!("{}{id}", self.rooms.prefix);
        session.human_identity = format!("human_{}", simple.get(simple.len() - SHORT_ID..).unwrap_or(&simple));
    }

    /// The session is recorded. Whatever goes wrong from here on, a timer finds it and cleans up.
    async fn make_room(
        &self,
        recorded: Recorded,
        context: Option<&str>,
        credential: &AgentCredential,
    ) -> Result<VoiceStart, Error> {
        let session = &recorded.session;
        let room = NewRoom {
            name: &session.room_name,
            agent_name: &session.agent_name,
            agent_metadata: self.agent_metadata(session, context, credential)?,
            empty_timeout: self.store.rules().human_join,
            departure_timeout: self.store.rules().human_return,
        };
        match self.livekit.create_room(room).await {
            Ok(sid) => {
                let room_name = session.room_name.clone();
                let live = self.store.go_live(recorded, sid).await?;
                let Some(session) = live.filter(|session| !session.is_over()) else {
                    // It took too long, or was ended meanwhile, perhaps before there was a room to delete.
                    self.births.report(room_name);
                    self.metrics.started("over");
                    return Err(Error::SessionOver);
                };
                self.metrics.started("allowed");
                tracing::info!(voice.session = %session.id, agent = session.agent_name, "Opened a voice room");
                self.admit(&session)
            }
            Err(error) => {
                tracing::warn!(voice.session = %session.id, %error, "A voice room could not be made");
                self.store.apply(session.id, Event::StartFailed).await?;
                if error.twirp_code() == Some("resource_exhausted") {
                    return Ok(self.refuse(VoiceRefusal::Capacity));
                }
                self.metrics.started("failed");
                Err(Error::RoomService(error))
            }
        }
    }

    /// The answer to a start that was made before; `None` when that one has failed.
    async fn replay(&self, id: GatewaySessionId, deadline: Instant) -> Result<Option<VoiceStart>, Error> {
        let mut news = self.store.notifier().subscribe(crate::store::topic(id));
        loop {
            let Some(found) = self.store.find(id).await? else { return Err(Error::Unknown("allowed")) };
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
            if timeout_at(deadline, news.changed()).await.is_err() {
                return Err(Error::InFlight);
            }
        }
    }

    /// The seven fields, with a fresh token, which counts its life by this machine's clock.
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
            participant_token: Some(token),
            expires_at: Some(session.expires_at),
        })
    }

    pub(crate) fn refuse(&self, reason: VoiceRefusal) -> VoiceStart {
        self.metrics.started(match reason {
            VoiceRefusal::RateLimited => "rate_limited",
            VoiceRefusal::UserSessions => "user_sessions",
            VoiceRefusal::TotalSessions => "total_sessions",
            VoiceRefusal::UserDailySeconds => "user_daily_seconds",
            VoiceRefusal::TotalDailySeconds => "total_daily_seconds",
            VoiceRefusal::Capacity => "capacity",
        });
        VoiceStart {
            allowed: false,
            reason: Some(reason),
            retry_after_seconds: None,
            gateway_session_id: None,
            room_name: None,
            room_url: None,
            participant_identity: None,
            participant_token: None,
            expires_at: None,
        }
    }

    /// What the agent is told, credentials and all.
    pub(crate) fn agent_metadata(
        &self,
        session: &VoiceSession,
        context: Option<&str>,
        credential: &AgentCredential,
    ) -> Result<String, Error> {
        let tool_bridge = self.tool_bridge_key.as_ref().and_then(|key| key.credential(session, self.clock.now()));
        let credentials = Credentials { agent: &credential.0, tool_bridge: tool_bridge.as_deref() };
        metadata(session, context, &credentials, &self.public_url).map_err(Error::Shape)
    }
}

/// What opens a session's agent door: 256 random bits, of which the database keeps the digest.
pub(crate) struct AgentCredential(String);

impl AgentCredential {
    pub(crate) fn generate() -> Self {
        let mut bytes = [0_u8; 32];
        OsRng.fill_bytes(&mut bytes);
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}
