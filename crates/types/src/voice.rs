//! Voice sessions: what clients send to the voice gateway and read from it, and what the voice agent reports.
//!
//! A voice session belongs to an application session. The ids of users and sessions are opaque here, because the
//! gateway also serves applications whose accounts live elsewhere. Only the response of `start` contains a secret: its
//! token.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::free::FreeObject;
use crate::ids::GatewaySessionId;
use crate::text::{Blob, Text};
use crate::time::Timestamp;
use crate::voice_history::VoiceError;

/// An id of the calling application, at most 64 characters.
pub type ApplicationId = Text<1, 64>;

/// Requests a voice session. `userId` and `sessionId` give no access to an existing room: each start opens its own.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "userId": "01932b5e-7b1a-7c3e-8f00-000000000002",
    "sessionId": "01932b5e-7b1a-7c3e-8f00-000000000001",
    "language": "en",
})))]
pub struct StartVoiceSession {
    pub user_id: ApplicationId,
    /// The application session to talk to.
    pub session_id: ApplicationId,
    /// A language code such as `en` or `zh-CN`; it also chooses the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Text<0, 35>>,
    /// What the agent should know from the start: at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_context_payload: Option<FreeObject<262_144>>,
    /// The URL of the agent's tools. Its origin must be on the gateway's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_bridge_base_url: Option<Text<1, 2048>>,
    /// The agent's first words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub welcome_message: Option<Text<0, 500>>,
}

/// The result of a start: the room and its token, or the reason for a refusal.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::voice_start())))]
pub struct VoiceStart {
    pub allowed: bool,
    /// The reason for a refusal; absent when allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<VoiceRefusal>,
    /// When a new start may succeed; absent when allowed or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    pub gateway_session_id: Option<GatewaySessionId>,
    pub room_name: Option<String>,
    /// The `wss` address of the room service.
    pub room_url: Option<String>,
    pub participant_identity: Option<String>,
    /// The identity under which the agent joins: the person's client answers only its tools.
    pub agent_identity: Option<String>,
    /// A JWT for this room only, valid until `expiresAt`. A secret.
    pub participant_token: Option<String>,
    /// When the session and the token end.
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

/// What an application sends as `X-Voice-Key`. It proves nothing about a person, whose token is sent with it.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"voiceKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"})))]
pub struct VoiceKey {
    pub voice_key: String,
}

/// Why a start was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoiceRefusal {
    /// Too many starts within a short time, by this application, user or address.
    RateLimited,
    /// The user has reached the limit of open voice sessions.
    UserSessions,
    /// The gateway has reached its limit of open voice sessions.
    TotalSessions,
    /// The user's seconds for today are used up.
    UserDailySeconds,
    /// The seconds of all users for today are used up.
    TotalDailySeconds,
    /// The room service has no capacity left.
    Capacity,
    /// No agent comes at present. One start every two seconds is let through to find out when they are back.
    AgentUnavailable,
}

/// The state of a voice session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceState {
    /// The room is being created, or a participant has not joined yet.
    Starting,
    /// The person and the agent have both joined.
    Active,
    /// The session has ended, and the room is being deleted.
    Stopping,
    /// The session has ended, and the room is deleted.
    Stopped,
    /// The session ended because of a fault.
    Error,
}

/// Why a voice session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoiceEndReason {
    StopRequested,
    /// Another voice session started for the same user and session.
    Replaced,
    Expired,
    /// The person left.
    Left,
    AgentUnavailable,
    StartFailed,
    /// The room service closed the room.
    RoomFinished,
}

/// The voice session that is to end.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"gatewaySessionId": "01932b5e-7b1a-7c3e-8f00-000000000001"})))]
pub struct StopVoiceSession {
    pub gateway_session_id: ApplicationId,
}

/// How a voice session has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"success": true, "state": "stopped", "endReason": "stop_requested", "durationSeconds": 60})))]
pub struct VoiceStop {
    pub success: bool,
    pub state: VoiceState,
    /// `null` when the session is unknown.
    pub end_reason: Option<VoiceEndReason>,
    /// Seconds from `activeAt` to the end.
    pub duration_seconds: u64,
}

/// A voice session without its secrets and its context.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::voice_status())))]
pub struct VoiceStatus {
    pub found: bool,
    pub gateway_session_id: GatewaySessionId,
    pub session_id: String,
    pub user_id: String,
    pub room_name: String,
    pub state: VoiceState,
    pub end_reason: Option<VoiceEndReason>,
    pub created_at: Timestamp,
    /// When the person and the agent were first present together.
    pub active_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub expires_at: Timestamp,
    pub duration_seconds: u64,
    pub participants: Vec<VoiceParticipant>,
    pub agent: VoiceAgent,
    pub pending: VoicePending,
    /// The last failure that an agent of the session reported.
    #[serde(default)]
    pub last_error: Option<VoiceError>,
    /// How often the agent has called its tools of the server, which read for the user.
    #[serde(default)]
    pub tool_calls: u64,
    /// Whether the room service confirmed this within the last few seconds. False after the end of the session.
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
    /// The participant was present and may come back.
    Away,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceAgent {
    pub name: String,
    pub joined: bool,
    pub ready: bool,
    /// The state that the agent last reported: `listening`, `thinking`, `speaking`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// What has not been delivered to the agent yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoicePending {
    pub texts: u64,
    pub context_version: u64,
    pub delivered_context_version: u64,
}

/// A text for the agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "gatewaySessionId": "01932b5e-7b1a-7c3e-8f00-000000000001",
    "text": "What is running?",
    "messageId": "1",
})))]
pub struct SendVoiceText {
    pub gateway_session_id: ApplicationId,
    /// 1 byte to 8 KiB; `message` is another name for it.
    #[serde(alias = "message")]
    pub text: Blob<1, 8192>,
    /// Two texts with the same id count as one: the second is treated as a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Text<1, 64>>,
}

/// Words that the agent speaks as they are. They are no turn of the person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"gatewaySessionId": "01932b5e-7b1a-7c3e-8f00-000000000001", "text": "The tests pass."})))]
pub struct SayVoiceText {
    pub gateway_session_id: ApplicationId,
    /// 1 byte to 8 KiB.
    pub text: Blob<1, 8192>,
    /// Ends what the agent says just now. Otherwise it speaks the words after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<bool>,
    /// Two texts with the same id count as one: the second is treated as a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<Text<1, 64>>,
}

/// What became of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"accepted": true, "messageId": "1", "delivery": "delivered"})))]
pub struct VoiceText {
    pub accepted: bool,
    pub message_id: String,
    pub delivery: VoiceDelivery,
}

/// The delivery state of a text or a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoiceDelivery {
    /// The agent has acknowledged it.
    Delivered,
    /// The gateway keeps it until the agent can receive it.
    Queued,
    /// It was sent over a channel that has no acknowledgement.
    Sent,
}

/// The state of the application, for the agent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"gatewaySessionId": "01932b5e-7b1a-7c3e-8f00-000000000001", "payload": {"screen": "runs"}})))]
pub struct SendVoiceContext {
    pub gateway_session_id: ApplicationId,
    /// Session state, messages and similar: at most 1 MiB.
    pub payload: FreeObject<1_048_576>,
}

/// What became of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"accepted": true, "contextVersion": 2, "delivery": "delivered"})))]
pub struct VoiceContext {
    pub accepted: bool,
    pub context_version: u64,
    pub delivery: VoiceDelivery,
}

/// What the agent reports about itself.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schema(examples(json!({ "type": "ready" })))]
pub enum VoiceAgentEvent {
    /// The agent's handlers are registered, so queued texts can be delivered.
    Ready,
    /// The agent is there. Sent every `heartbeatSeconds` of the dispatch once it is ready.
    Heartbeat,
    State {
        state: Text<1, 32>,
    },
    /// One finished utterance. The newest 500 are kept until ten minutes after the session.
    Transcript {
        role: Text<1, 32>,
        text: Blob<0, 65_536>,
        /// Chosen by the agent. A second one with the same id is a repetition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Text<1, 64>>,
    },
    /// Why the agent does not work, as far as it is no secret and nothing that was said. The session's status shows it.
    Error {
        code: Text<1, 64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Blob<0, 4096>>,
    },
}

/// The agent spoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(examples(json!({"success": true})))]
pub struct VoiceAgentReceipt {
    pub success: bool,
}

/// A text that was too large for a packet. The agent fetches it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"id": "1", "seq": 1, "text": "The tests pass."})))]
pub struct VoicePulledText {
    pub id: String,
    pub seq: u64,
    pub text: Blob<1, 8192>,
}
