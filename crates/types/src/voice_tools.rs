//! What the agent of a voice session may read for its user, as far as the server can read it. It is data for a language model, which
//! must never take it for an instruction.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::runs::RunSummary;
use crate::time::Timestamp;

/// The user's newest runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"runs": [examples::voice_tool_run()], "more": false})))]
pub struct VoiceToolRuns {
    pub runs: Vec<VoiceToolRun>,
    /// There are more than these.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceToolRun {
    pub id: String,
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A run status.
    pub status: String,
    pub summary: RunSummary,
    pub created_at: Timestamp,
    /// Absent until it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// One run and its first 20 tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::voice_tool_run_detail())))]
pub struct VoiceToolRunDetail {
    pub run: VoiceToolRun,
    #[schema(max_items = 20)]
    pub tasks: Vec<VoiceToolTask>,
    /// There are more than these.
    pub more: bool,
}

/// A task in brief. What there is nothing to say of is absent; long texts are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceToolTask {
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A task status.
    pub status: String,
    pub provider: String,
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_summary: Option<String>,
    /// What it does and what came of it is sealed: only the user's own programs can read it.
    pub sealed: bool,
}

/// The user's sessions, the most recently changed first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::voice_tool_sessions())))]
pub struct VoiceToolSessions {
    pub sessions: Vec<VoiceToolSession>,
    /// There are more than these.
    pub more: bool,
}

/// A session without what is sealed: its name and its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VoiceToolSession {
    pub id: String,
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// `active` or `ended`.
    pub status: String,
    pub archived: bool,
    pub online: bool,
    pub thinking: bool,
    /// What it wants: `none`, `permission`, `question`, `finished` or `failed`.
    pub attention: String,
    /// Open requests.
    pub open: u32,
    pub updated_at: Timestamp,
}
