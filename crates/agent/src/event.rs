//! What an agent did, in the words of a transcript.

use ensemble_protocol::transcript::body::{
    Choice, ContextUse, PermissionOption, Plan, QuestionItem, SlashCommand, ToolCall, ToolContent, Usage,
};
use ensemble_protocol::transcript::words::{Cause, ErrorCode, Mode, StopReason};
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a call of a driver gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// For the agent's standard input, each without its line feed.
    pub lines: Vec<String>,
    pub events: Vec<Event>,
    /// The agent's input is to be closed after the lines.
    pub close: bool,
}

/// Whether a text is said or thought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PartKind {
    Text,
    Thought,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The agent takes prompts.
    Ready {
        /// Its id of the conversation, to resume it by.
        session_id: String,
    },
    /// The conversation to resume no longer exists. The process ends or is of no use.
    ResumeFailed(String),
    /// The agent has taken up the prompt with this id.
    Taken(String),
    TurnStarted(Cause),
    TurnEnded {
        stop: StopReason,
        /// Of the turn.
        usage: Option<Usage>,
        /// Of the turn, in US dollars.
        cost_usd: Option<f64>,
    },
    /// What the turn that runs has cost so far, in US dollars.
    Cost(f64),
    /// A part of the turn grows. Parts are numbered from 0 in each turn.
    Delta {
        part: u32,
        kind: PartKind,
        text: String,
    },
    /// A part is complete. A text that is too long for a message has several, which name the first one in `of`.
    Complete {
        part: u32,
        of: Option<u32>,
        kind: PartKind,
        text: String,
        interrupted: bool,
        /// The tool call of the sub-agent that wrote it.
        parent: Option<String>,
    },
    /// A tool call, or what has changed in it. `turn_id` is empty; the host knows it.
    Tool(Box<ToolCall>),
    /// The output of a running tool grows.
    ToolOutput {
        id: String,
        part: u32,
        text: String,
    },
    Plan(Plan),
    Permission(Box<Permission>),
    Question(Box<Question>),
    /// The whole answer of the turn, as the agent repeats it at the end. Only where no person watches.
    Answer(String),
    /// The agent refused itself a tool, because no person was there to allow it.
    Denied {
        tool: String,
        /// What it was to be used for, in a few words.
        detail: String,
    },
    /// A request is no longer open, and was not answered.
    Withdrawn {
        request: String,
        reason: &'static str,
    },
    State(Box<StateChange>),
    Failure {
        code: ErrorCode,
        text: String,
        retry_at: Option<Timestamp>,
    },
    /// The agent tries again by itself.
    Retrying {
        code: ErrorCode,
        text: String,
    },
    /// A line that is no message, or a piece of a line that is too long for one.
    Raw(String),
    /// Something that the driver does not know or does not obey. For the log; it has no content of the session.
    Note(String),
}

/// The agent asks whether it may do something.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// The driver's own name for the request, which differs for each, whatever ids the agent uses.
    pub request: String,
    /// The agent's id of the request.
    pub agent_request: String,
    pub tool_call_id: Option<String>,
    pub title: String,
    /// The whole of what is asked about, made visible. See [`ensemble_protocol::transcript::detail`].
    pub detail: String,
    /// The bytes of the detail that are missing. There are only options that refuse then.
    pub cut: Option<u64>,
    /// Diffs, where the agent gives them.
    pub content: Vec<ToolContent>,
    pub options: Vec<PermissionOption>,
    /// What the agent asked with, as it came: the host computes diffs from it.
    pub input: Value,
}

/// The agent asks something.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub request: String,
    pub agent_request: String,
    pub tool_call_id: Option<String>,
    pub questions: Vec<QuestionItem>,
}

/// What is different now. A field that is `None` has not changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateChange {
    pub mode: Option<Mode>,
    pub model: Option<String>,
    pub modes: Option<Vec<Choice>>,
    pub models: Option<Vec<Choice>>,
    pub commands: Option<Vec<SlashCommand>>,
    pub context: Option<ContextUse>,
    /// The commands that have outlived their turn. Only where the agent lists them: see [`crate::Abilities::lists_commands`].
    pub still_running: Option<Vec<String>>,
}
