//! Voice sessions of a user, what was said in one, and what its agent read.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::time::Timestamp;
use crate::voice::VoiceStatus;

/// A page of a user's voice sessions, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"sessions": [examples::voice_status()], "nextCursor": null})))]
pub struct VoiceSessionPage {
    /// As the gateway last knew them: `live` is false for those that were not confirmed lately.
    pub sessions: Vec<VoiceStatus>,
    pub next_cursor: Option<String>,
}

/// What was said in a voice session, oldest first. The newest 500 utterances are kept while it lives and ten minutes after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::voice_transcript())))]
pub struct VoiceTranscript {
    pub utterances: Vec<VoiceUtterance>,
    /// There are more after these.
    pub more: bool,
    /// The newest 100 calls of the server's tools, oldest first.
    pub tool_calls: Vec<VoiceToolCall>,
    /// When it is deleted; `null` while the session lives.
    pub deleted_at: Option<Timestamp>,
}

/// One finished utterance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceUtterance {
    /// Counts from 1 in its session.
    pub seq: u64,
    /// As the agent reported it: `user` is the person, `assistant` the agent.
    pub role: String,
    /// Its first 4 KiB.
    pub text: String,
    /// It was longer.
    pub cut: bool,
    pub at: Timestamp,
}

/// A call of one of the server's tools, which read for the user. It was recorded before it was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceToolCall {
    /// Counts from 1 in its session.
    pub seq: u64,
    /// `runs.list`, `runs.show` or `sessions.list`.
    pub name: String,
    /// The run that was asked for, by its id or ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    pub at: Timestamp,
}

/// Why an agent does not work, as it said itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceError {
    /// As in `no_models`, `stt_not_usable`, `llm_error`.
    pub code: String,
    /// At most 500 characters. Only for the session's user, with the user's token, and until the session has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub at: Timestamp,
}
