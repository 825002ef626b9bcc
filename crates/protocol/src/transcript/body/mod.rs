//! The body of a message: the fields that all have, and one type for each kind of content.
//!
//! docs/TRANSCRIPT.md defines them. The shapes and words are those of ACP's `session/update` and permission options
//! (agentclientprotocol.com, protocol version 1) where ACP has them.

mod command;
mod host;
mod tool;

use ensemble_types::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use command::{AccessGrant, Answer, Attachment, Control, Prompt, Resource, Resume, SetMode, SetModel, TakeBack};
pub use host::{
    Choice, ContextUse, Failure, Permission, PermissionOption, Plan, PlanEntry, Question, QuestionItem, QuestionOption,
    Receipt, Resolved, SlashCommand, State, TextPart, Turn, Usage,
};
pub use tool::{Block, Diff, ExitStatus, Location, Terminal, ToolCall, ToolContent};

use crate::transcript::bounds::{MOST_BODY, MOST_ID};

/// The version of the format that this code writes.
pub const VERSION: u32 = 1;

/// Which device list of the owner a signer knew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownList {
    /// 1 to 10,000.
    pub version: u32,
    /// SHA-256 of the list's body, base64url.
    pub digest: String,
}

/// One message of a transcript, opened and read.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The id that its writer gave it: 1 to 128 bytes, the same as the one that is sent with the sealed message.
    pub local_id: String,
    /// By the signer's clock.
    pub at: Timestamp,
    /// The newest list of the owner that the signer knew.
    pub list: KnownList,
    /// The host's own count in this session, from 1 without gaps. Only in the host's messages.
    pub n: Option<u64>,
    pub content: Content,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Prompt(Prompt),
    Turn(Turn),
    Text(TextPart),
    Thought(TextPart),
    ToolCall(Box<ToolCall>),
    Plan(Plan),
    Permission(Box<Permission>),
    Question(Question),
    Answer(Answer),
    Resolved(Resolved),
    Control(Control),
    Receipt(Receipt),
    State(Box<State>),
    Error(Failure),
    /// A type, or a version, that this code does not know. Shown as "something newer".
    Newer(Box<str>),
}

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("the message has {0} bytes; at most 655,360 are read")]
    TooLong(usize),
    #[error("the message does not have the form of one: {0}")]
    Malformed(String),
}

/// Who writes messages of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    Host,
    Client,
    /// Unknown to this version.
    Unknown,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    v: u32,
    r#type: String,
    local_id: String,
    at: Timestamp,
    list: KnownList,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<u64>,
}

#[derive(Serialize)]
struct Whole<'a, T> {
    #[serde(flatten)]
    head: &'a Head,
    #[serde(flatten)]
    fields: &'a T,
}

impl Content {
    /// The word in `type`.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Prompt(_) => "prompt",
            Self::Turn(_) => "turn",
            Self::Text(_) => "text",
            Self::Thought(_) => "thought",
            Self::ToolCall(_) => "tool_call",
            Self::Plan(_) => "plan",
            Self::Permission(_) => "permission",
            Self::Question(_) => "question",
            Self::Answer(_) => "answer",
            Self::Resolved(_) => "resolved",
            Self::Control(_) => "control",
            Self::Receipt(_) => "receipt",
            Self::State(_) => "state",
            Self::Error(_) => "error",
            Self::Newer(name) => name,
        }
    }

    /// Who writes messages of this type. Others that claim to be one are shown as a note and never obeyed.
    pub fn writer(&self) -> Writer {
        match self {
            Self::Prompt(_) | Self::Answer(_) | Self::Control(_) => Writer::Client,
            Self::Newer(_) => Writer::Unknown,
            _ => Writer::Host,
        }
    }
}

impl Message {
    /// Reads a body. Unknown fields are ignored; an unknown type or a later `v` becomes [`Content::Newer`].
    pub fn read(body: &str) -> Result<Self, BadBody> {
        if body.len() > MOST_BODY {
            return Err(BadBody::TooLong(body.len()));
        }
        let head: Head = parse(body)?;
        let id_length = head.local_id.len();
        if id_length == 0 || id_length > MOST_ID {
            return Err(BadBody::Malformed("localId must have 1 to 128 bytes".to_owned()));
        }
        let content = if head.v == VERSION { content(&head.r#type, body)? } else { newer(&head.r#type) };
        Ok(Self { local_id: head.local_id, at: head.at, list: head.list, n: head.n, content })
    }

    /// The body as text. The signature is over these bytes, so a body is written once and kept.
    pub fn write(&self) -> Result<String, BadBody> {
        let head = Head {
            v: VERSION,
            r#type: self.content.type_name().to_owned(),
            local_id: self.local_id.clone(),
            at: self.at,
            list: self.list.clone(),
            n: self.n,
        };
        let text = match &self.content {
            Content::Prompt(fields) => join(&head, fields),
            Content::Turn(fields) => join(&head, fields),
            Content::Text(fields) | Content::Thought(fields) => join(&head, fields),
            Content::ToolCall(fields) => join(&head, fields),
            Content::Plan(fields) => join(&head, fields),
            Content::Permission(fields) => join(&head, fields),
            Content::Question(fields) => join(&head, fields),
            Content::Answer(fields) => join(&head, fields),
            Content::Resolved(fields) => join(&head, fields),
            Content::Control(fields) => join(&head, &fields.to_wire()),
            Content::Receipt(fields) => join(&head, fields),
            Content::State(fields) => join(&head, fields),
            Content::Error(fields) => join(&head, fields),
            Content::Newer(_) => join(&head, &serde_json::Map::new()),
        };
        match text {
            Ok(text) if text.len() <= MOST_BODY => Ok(text),
            Ok(text) => Err(BadBody::TooLong(text.len())),
            Err(error) => Err(BadBody::Malformed(error.to_string())),
        }
    }
}

fn join(head: &Head, fields: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(&Whole { head, fields })
}

fn content(name: &str, body: &str) -> Result<Content, BadBody> {
    Ok(match name {
        "prompt" => Content::Prompt(parse(body)?),
        "turn" => Content::Turn(parse(body)?),
        "text" => Content::Text(parse(body)?),
        "thought" => Content::Thought(parse(body)?),
        "tool_call" => Content::ToolCall(parse(body)?),
        "plan" => Content::Plan(parse(body)?),
        "permission" => Content::Permission(parse(body)?),
        "question" => Content::Question(parse(body)?),
        "answer" => Content::Answer(parse(body)?),
        "resolved" => Content::Resolved(parse(body)?),
        "control" => Content::Control(Control::of_wire(parse(body)?).map_err(malformed)?),
        "receipt" => Content::Receipt(parse(body)?),
        "state" => Content::State(parse(body)?),
        "error" => Content::Error(parse(body)?),
        other => newer(other),
    })
}

fn newer(name: &str) -> Content {
    Content::Newer(name.into())
}

fn parse<T: DeserializeOwned>(body: &str) -> Result<T, BadBody> {
    serde_json::from_str(body).map_err(malformed)
}

fn malformed(error: serde_json::Error) -> BadBody {
    BadBody::Malformed(error.to_string())
}
