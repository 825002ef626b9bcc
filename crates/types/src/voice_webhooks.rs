//! Webhooks to endpoints of the operator's: the events of voice sessions. They contain nothing of what was said.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::GatewaySessionId;
use crate::time::Timestamp;
use crate::voice::{VoiceEndReason, VoiceState};

/// The body of a webhook (Standard Webhooks).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VoiceWebhook {
    #[serde(rename = "type")]
    pub kind: VoiceWebhookType,
    /// When it happened. It may be sent later.
    pub timestamp: Timestamp,
    pub data: VoiceWebhookSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum VoiceWebhookType {
    /// There is a room, and its agent was sent for.
    #[serde(rename = "voice.session.started")]
    Started,
    /// Person and agent are both there.
    #[serde(rename = "voice.session.active")]
    Active,
    #[serde(rename = "voice.session.ended")]
    Ended,
}

/// The session as it was then.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceWebhookSession {
    pub gateway_session_id: GatewaySessionId,
    pub session_id: String,
    pub user_id: String,
    /// False: no token of the user came with the start, and `userId` is what an application says.
    pub user_proven: bool,
    pub state: VoiceState,
    pub created_at: Timestamp,
    pub active_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<VoiceEndReason>,
    pub duration_seconds: u64,
}
