//! What the host writes: turns, texts, plans, requests, receipts, states and errors.

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::command::AccessGrant;
use super::tool::ToolContent;
use crate::transcript::words::{
    Cause, ErrorCode, Mode, OptionKind, Outcome, Phase, PlanPriority, PlanStatus, ReceiptCode, ReceiptOutcome,
    StopReason, TurnState,
};

/// The beginning or the end of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub turn_id: String,
    pub state: TurnState,
    pub cause: Cause,
    /// The `localId` of the prompt that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<String>,
    /// The prompt itself, where it is a task's, which no message contains. Only at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Only at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Of this turn. Only at the end, where the agent says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Of this turn, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Tokens, with the names of ACP's `Usage`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// All that the model read, those from a cache included.
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_write_tokens: Option<u64>,
}

/// A text of the agent, once it is complete, or a part of one that does not fit into a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextPart {
    pub turn_id: String,
    /// Its number in the turn, from 0. Texts, thoughts and the outputs of tools are counted together; live frames name it.
    pub part: u32,
    /// The number of the part that this one continues, when a text has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    pub text: String,
    /// The turn was interrupted before the text was complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The tool call of the sub-agent that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_tool_call_id: Option<String>,
}

/// What the agent is going to do. A later plan replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub entries: Vec<PlanEntry>,
}

/// ACP's `PlanEntry`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    pub content: String,
    pub priority: PlanPriority,
    pub status: PlanStatus,
}

/// The agent asks whether it may do something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Made by the host, never the agent's, and never used again.
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    pub title: String,
    /// All that the agent asked about: command, path, diff or input. Control, bidi and zero-width characters are visible.
    pub detail: String,
    /// How many bytes of the detail are missing. Such a request can only be refused here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    /// The diffs of an edit, for readers that colour them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolContent>,
    pub options: Vec<PermissionOption>,
}

/// ACP's `PermissionOption`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    pub option_id: String,
    /// What it does, and for "always" where it is kept.
    pub name: String,
    pub kind: OptionKind,
}

/// The agent asks something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    pub questions: Vec<QuestionItem>,
}

/// One of its questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionItem {
    pub id: String,
    pub text: String,
    /// A heading of a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<QuestionOption>>,
    /// Several options may be chosen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
}

/// An answer that the agent offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionOption {
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A request is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    pub request_id: String,
    pub outcome: Outcome,
    /// The option that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option_id: Option<String>,
    /// Whose answer counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
    /// Why it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The `localId` of the command. The receipt has one of its own, so the field has another name.
    pub command_id: String,
    /// The key that signed the command: two devices may use one `localId`.
    pub key: String,
    pub outcome: ReceiptOutcome,
    /// Only when it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ReceiptCode>,
    /// What happened and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What the session is doing and what can be chosen. A later state replaces it, but for the lists of what can be chosen: one that is
/// absent has not changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    pub phase: Phase,
    /// The name of the agent, as in `claude`.
    pub agent: String,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<Choice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Choice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<SlashCommand>,
    /// Whether `when: "now"` reaches the turn that runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steers: bool,
    /// What the host does that older ones do not, such as `look.git`. An unknown word is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub does: Vec<String>,
    pub directory: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The agent's own id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextUse>,
    /// Of the session so far, in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The commands that the agent has started and that have outlived their turn. `interrupt` ends them while no turn runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub still_running: Vec<String>,
    /// The `localId`s of the prompts that wait, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
    /// All that the owner has said about guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<AccessGrant>,
    /// The epoch of the session's key that the host seals with.
    pub key_epoch: u32,
}

impl State {
    /// This state after an earlier one: a list that is absent has not changed.
    pub fn after(mut self, known: Option<Self>) -> Self {
        if let Some(known) = known {
            fn keep<T>(new: &mut Vec<T>, known: Vec<T>) {
                if new.is_empty() {
                    *new = known;
                }
            }
            keep(&mut self.modes, known.modes);
            keep(&mut self.models, known.models);
            keep(&mut self.commands, known.commands);
        }
        self
    }
}

/// Something that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub id: String,
    pub name: String,
}

/// A command of the agent's own, which a prompt can begin with: ACP's `AvailableCommand`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlashCommand {
    pub name: String,
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How much of what the model reads at once is used, in tokens: ACP's `UsageUpdate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextUse {
    pub used: u64,
    pub size: u64,
}

/// Something went wrong with the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub code: ErrorCode,
    pub text: String,
    /// When it can be tried again, where the agent says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}
