//! The record of one voice session: who talks to which agent, where, until when, and how far the context has come.

use std::time::Duration;

use ensemble_chassis::KeySet;
use ensemble_types::ids::{GatewaySessionId, UserId};
use ensemble_types::time::Timestamp;
use ensemble_types::voice::{
    StartVoiceSession, VoiceAgent, VoiceEndReason, VoiceParticipant, VoiceParticipantKind, VoiceParticipantState,
};
use serde::{Deserialize, Serialize};

use super::context::ContextMarks;
use super::history::LastError;
use super::start_token::StartToken;
use super::state::{Agent, Event, Human, Refused, Rules, State};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoiceSession {
    pub(crate) id: GatewaySessionId,
    pub(crate) user_id: String,
    /// The application's session.
    pub(crate) session_id: String,
    pub(crate) language: Option<String>,
    pub(crate) welcome_message: Option<String>,
    pub(crate) tool_bridge: Option<String>,
    /// The start came with the user's token. Otherwise the user is what an application says.
    #[serde(default)]
    pub(crate) user_proven: bool,
    /// That token. Sessions of before it was recorded have none.
    #[serde(default)]
    pub(crate) start_token: Option<StartToken>,
    pub(crate) agent_name: String,
    pub(crate) room_name: String,
    pub(crate) human_identity: String,
    pub(crate) state: State,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// When LiveKit was last asked about this session.
    pub(crate) observed_at: Option<Timestamp>,
    /// The last state that the agent reported.
    pub(crate) agent_state: Option<String>,
    pub(crate) context: ContextMarks,
    /// How often the agent has called its tools of the server.
    #[serde(default)]
    pub(crate) tool_calls: i64,
    /// How many utterances were reported.
    #[serde(default)]
    pub(crate) utterances: i64,
    #[serde(default)]
    pub(crate) last_error: Option<LastError>,
}

/// A session to be recorded. The transaction that records it sets its times.
#[derive(Clone)]
pub(crate) struct NewSession {
    pub(crate) session: VoiceSession,
    pub(crate) context: Option<String>,
    /// SHA-256 of the agent's credential.
    pub(crate) agent_token: [u8; 32],
    pub(crate) key: Option<StartKey>,
}

/// The caller's `Idempotency-Key` and the digest of the body.
#[derive(Clone)]
pub(crate) struct StartKey {
    pub(crate) key: String,
    pub(crate) body_hash: [u8; 32],
}

/// This many characters of the session's id are part of the person's identity in the room.
const SHORT_ID: usize = 12;

impl VoiceSession {
    /// What a caller asked for, without a name and without times.
    pub(crate) fn plan(
        body: StartVoiceSession,
        agent_name: String,
        tool_bridge: Option<String>,
        has_context: bool,
        start_token: Option<StartToken>,
    ) -> Self {
        let epoch = Timestamp::from_micros(0);
        Self {
            id: GatewaySessionId::generate(),
            user_id: body.user_id.into_string(),
            session_id: body.session_id.into_string(),
            language: body.language.map(|language| language.into_string()).filter(|language| !language.is_empty()),
            welcome_message: body.welcome_message.map(|text| text.into_string()).filter(|text| !text.is_empty()),
            tool_bridge,
            user_proven: start_token.is_some(),
            start_token,
            agent_name,
            room_name: String::new(),
            human_identity: String::new(),
            state: State::Creating { give_up_at: epoch, early_agent: None },
            created_at: epoch,
            expires_at: epoch,
            observed_at: None,
            agent_state: None,
            context: ContextMarks { version: i64::from(has_context), ..ContextMarks::default() },
            tool_calls: 0,
            utterances: 0,
            last_error: None,
        }
    }

    /// Names the session and its room. A room's name is never used twice, because LiveKit may take a while to forget one.
    pub(crate) fn name(&mut self, id: GatewaySessionId, room_prefix: &str) {
        let simple = id.to_string().replace('-', "");
        self.id = id;
        self.room_name = format!("{room_prefix}{id}");
        self.human_identity = format!("human_{}", simple.get(simple.len() - SHORT_ID..).unwrap_or(&simple));
    }

    /// Under which the agent joins. A later agent of the session puts an earlier one out.
    pub(crate) fn agent_identity(&self) -> String {
        format!("agent_{}", self.human_identity.trim_start_matches("human_"))
    }

    /// Whether a start without the user's token would take this session's place. It may not.
    pub(crate) fn is_kept_from(&self, newcomer: &VoiceSession) -> bool {
        self.user_proven && !newcomer.user_proven
    }

    /// Whether the token that started it counts no longer.
    pub(crate) fn is_refused(&self, keys: &KeySet) -> bool {
        self.start_token.as_ref().is_some_and(|token| token.is_refused(keys))
    }

    /// Whether its agent may read for this user now.
    pub(crate) fn may_read_for(&self, user: UserId, keys: &KeySet) -> bool {
        self.state.live().is_some() && self.user_proven && self.user_id == user.to_string() && !self.is_refused(keys)
    }

    /// Sets the times when the record is about to be written: `granted` is how long the session may last.
    pub(crate) fn begin(&mut self, now: Timestamp, granted: Duration, rules: &Rules) {
        self.created_at = now;
        self.expires_at = now.plus(granted);
        self.state = State::Creating { give_up_at: now.plus(rules.create), early_agent: None };
    }

    /// Applies an event. Refused: nothing has changed.
    pub(crate) fn apply(&mut self, event: Event, now: Timestamp, rules: &Rules) -> Result<(), Refused> {
        let was_ready = self.agent_sid();
        self.state = self.state.clone().next(event, now, rules)?;
        let is_ready = self.agent_sid();
        if was_ready != is_ready {
            self.context.agent_changed(is_ready.is_some());
            self.agent_state = None;
        }
        Ok(())
    }

    /// The stay of the agent that is ready.
    fn agent_sid(&self) -> Option<String> {
        self.state.live().filter(|live| live.agent.is_ready()).and_then(|live| live.agent.sid().cloned())
    }

    /// The identity to which packets for the agent are sent; `None` while it cannot take any.
    pub(crate) fn reachable_agent(&self) -> Option<&str> {
        match &self.state.live()?.agent {
            Agent::Ready { identity, .. } => Some(identity),
            Agent::Awaited { .. } | Agent::Joined { .. } => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.end().is_some()
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.state.end().map(|end| end.ended_at)
    }

    /// Whole seconds between `activeAt` and the end, or `now`.
    pub(crate) fn duration_seconds(&self, now: Timestamp) -> u64 {
        let Some(active_at) = self.state.active_at() else { return 0 };
        self.ended_at().unwrap_or(now).since(active_at).as_secs()
    }

    pub(crate) fn participants(&self) -> Vec<VoiceParticipant> {
        let Some(live) = self.state.live() else { return Vec::new() };
        let mut all = Vec::with_capacity(2);
        let human = |state, joined_at| VoiceParticipant {
            identity: self.human_identity.clone(),
            kind: VoiceParticipantKind::Human,
            state,
            joined_at,
        };
        match live.human {
            Human::Awaited { .. } => {}
            Human::Present { since, .. } => all.push(human(VoiceParticipantState::Active, Some(since))),
            Human::Away { .. } => all.push(human(VoiceParticipantState::Away, None)),
        }
        if let Agent::Joined { identity, since, .. } | Agent::Ready { identity, since, .. } = &live.agent {
            all.push(VoiceParticipant {
                identity: identity.clone(),
                kind: VoiceParticipantKind::Agent,
                state: VoiceParticipantState::Active,
                joined_at: Some(*since),
            });
        }
        all
    }

    pub(crate) fn agent(&self) -> VoiceAgent {
        let agent = self.state.live().map(|live| &live.agent);
        VoiceAgent {
            name: self.agent_name.clone(),
            joined: agent.is_some_and(|agent| !agent.is_awaited()),
            ready: agent.is_some_and(Agent::is_ready),
            state: self.agent_state.clone(),
        }
    }
}

/// The name of a reason on the wire, in the database and in metrics.
pub(crate) fn end_reason_name(reason: VoiceEndReason) -> &'static str {
    match reason {
        VoiceEndReason::StopRequested => "stop_requested",
        VoiceEndReason::Replaced => "replaced",
        VoiceEndReason::Expired => "expired",
        VoiceEndReason::Left => "left",
        VoiceEndReason::AgentUnavailable => "agent_unavailable",
        VoiceEndReason::StartFailed => "start_failed",
        VoiceEndReason::RoomFinished => "room_finished",
    }
}
