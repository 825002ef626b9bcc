//! Voice sessions: what a client sends to and reads from the voice gateway, and what the voice agent does.
//!
//! A voice session belongs to an application session. Its ids of users and sessions are opaque here: the gateway also
//! serves applications whose accounts live elsewhere. Nothing in a response carries a secret, save the token of `start`.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::free::FreeObject;
use crate::ids::GatewaySessionId;
use crate::text::{Blob, Text};
use crate::time::Timestamp;

/// An id of the application that called, at most 64 characters.
pub type ApplicationId = Text<1, 64>;

/// Asks for a voice session. Whoever knows `userId` and `sessionId` only gets a room of their own.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartVoiceSession {
    pub user_id: ApplicationId,
    /// The application's session to talk to.
    pub session_id: ApplicationId,
    /// A language code such as `en` or `zh-CN`; it also chooses the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Text<0, 35>>,
    /// What the agent should know from the first second on: at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_context_payload: Option<FreeObject<262_144>>,
    /// Where the agent's tools are; its origin must be on the gateway's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_bridge_base_url: Option<Text<1, 2048>>,
    /// What the agent says first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub welcome_message: Option<Text<0, 500>>,
}

/// The answer to a start: where to go and with which token, or why not.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStart {
    pub allowed: bool,
    /// Why not; absent when allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<VoiceRefusal>,
    /// When it may be worth asking again; absent when allowed or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    pub gateway_session_id: Option<GatewaySessionId>,
    pub room_name: Option<String>,
    /// The `wss` address of the room service.
    pub room_url: Option<String>,
    pub participant_identity: Option<String>,
    /// A JWT that opens this one room until `expiresAt`. A secret.
    pub participant_token: Option<String>,
    /// The end of the session and of the token.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for VoiceStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VoiceStart")
            .field("allowed", &self.allowed)
            .field("reason", &self.reason)
            .field("gateway_session_id", &self.gateway_session_id)
            .field("room_name", &self.room_name)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Why a start was not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoiceRefusal {
    /// Too many starts in a short time, by this application, user or address.
    RateLimited,
    /// The user has as many voice sessions open as one may have.
    UserSessions,
    /// The gateway has as many voice sessions open as it may have.
    TotalSessions,
    /// The user's seconds for today are used up.
    UserDailySeconds,
    /// Everybody's seconds for today are used up.
    TotalDailySeconds,
    /// The room service has no room left.
    Capacity,
}

/// Where a voice session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceState {
    /// The room is being made, or somebody is not there yet.
    Starting,
    /// Person and agent were both there.
    Active,
    /// Ended; the room is being deleted.
    Stopping,
    /// Ended, and the room is gone.
    Stopped,
    /// Ended because it could not work.
    Error,
}

/// Why a voice session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoiceEndReason {
    StopRequested,
    /// Another voice session was started for the same user and session.
    Replaced,
    Expired,
    /// The person left.
    Left,
    AgentUnavailable,
    StartFailed,
    /// The room service closed the room.
    RoomFinished,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopVoiceSession {
    pub gateway_session_id: ApplicationId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStop {
    pub success: bool,
    pub state: VoiceState,
    /// `null` when the session is unknown.
    pub end_reason: Option<VoiceEndReason>,
    /// Seconds from `activeAt` to the end.
    pub duration_seconds: u64,
}

/// Everything about a voice session but its secrets and its context.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceStatus {
    pub found: bool,
    pub gateway_session_id: GatewaySessionId,
    pub session_id: String,
    pub user_id: String,
    pub room_name: String,
    pub state: VoiceState,
    pub end_reason: Option<VoiceEndReason>,
    pub created_at: Timestamp,
    /// When person and agent were first there together.
    pub active_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub expires_at: Timestamp,
    pub duration_seconds: u64,
    pub participants: Vec<VoiceParticipant>,
    pub agent: VoiceAgent,
    pub pending: VoicePending,
    /// Whether the room service has confirmed this within the last seconds. False once the session is over.
    pub live: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceParticipant {
    pub identity: String,
    pub kind: VoiceParticipantKind,
    pub state: VoiceParticipantState,
    pub joined_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceParticipantKind {
    Human,
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceParticipantState {
    Active,
    /// Was there and may come back.
    Away,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceAgent {
    pub name: String,
    pub joined: bool,
    pub ready: bool,
    /// What the agent last said of itself: `listening`, `thinking`, `speaking`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// What has not reached the agent yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoicePending {
    pub texts: u64,
    pub context_version: u64,
    pub delivered_context_version: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendVoiceText {
    pub gateway_session_id: ApplicationId,
    /// 1 byte to 8 KiB; `message` is another name for it.
    #[serde(alias = "message")]
    pub text: Blob<1, 8192>,
    /// Of two texts with one id the second is taken for a repetition of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Text<1, 64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceText {
    pub accepted: bool,
    pub message_id: String,
    pub delivery: VoiceDelivery,
}

/// How far a text or a context has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceDelivery {
    /// The agent has acknowledged it.
    Delivered,
    /// It is kept until the agent can take it.
    Queued,
    /// It was sent, by a way that has no acknowledgement.
    Sent,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendVoiceContext {
    pub gateway_session_id: ApplicationId,
    /// Session state, messages and the like: at most 1 MiB.
    pub payload: FreeObject<1_048_576>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceContext {
    pub accepted: bool,
    pub context_version: u64,
    pub delivery: VoiceDelivery,
}

/// What the agent tells the gateway about itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum VoiceAgentEvent {
    /// Its handlers are registered: queued texts may come.
    Ready,
    State {
        state: Text<1, 32>,
    },
    /// One finished utterance. It is counted, not kept.
    Transcript {
        role: Text<1, 32>,
        text: Blob<0, 65_536>,
    },
    Error {
        code: Text<1, 64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Blob<0, 4096>>,
    },
}

/// The agent was heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VoiceAgentHeard {
    pub success: bool,
}

/// A text that was too large for a packet, for the agent to fetch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoicePulledText {
    pub id: String,
    pub seq: u64,
    pub text: Blob<1, 8192>,
}
