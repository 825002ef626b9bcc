//! What the host wants of an agent.

use std::collections::BTreeMap;
use std::fmt;

use ensemble_protocol::transcript::body::Attachment;
use ensemble_protocol::transcript::words::Mode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::mcp::McpServer;

/// How a session begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// An absolute path. The host starts the process there.
    pub directory: String,
    /// A UUID that becomes the agent's id of the conversation, where the agent takes one (claude).
    pub session_id: String,
    pub mode: Mode,
    /// `None`: the agent chooses.
    #[serde(default)]
    pub model: Option<String>,
    /// The agent's id of the conversation to resume.
    #[serde(default)]
    pub resume: Option<String>,
    /// A copy of that conversation is continued, which gets an id of its own. See [`crate::forks`].
    #[serde(default)]
    pub fork: bool,
    /// What the conversation to resume has cost so far, in US dollars.
    #[serde(default)]
    pub cost_before: f64,
    /// The host runs as root: claude wants a confirmation for `bypass` then.
    #[serde(default)]
    pub as_root: bool,
    /// The turn of that conversation that ran on without a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// What an editor has for the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
    /// A folder of this session that only this user can enter, as an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<String>,
    #[serde(skip)]
    pub attended: Attended,
}

/// Who answers what the agent asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Attended {
    #[default]
    People,
    Unattended(Box<Unattended>),
}

/// What an agent may do that no person watches. What it asks is refused: by itself where it can, and else by the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unattended {
    /// Patterns of tools that it may use without asking. Only for agents that take them: see [`crate::takes_tools`].
    pub tools: Vec<String>,
    /// What it may cost, in US dollars, without what its conversation has cost before. Only for agents that count.
    pub max_cost_usd: Option<f64>,
    /// The program's version, if it is known.
    pub version: Option<String>,
    /// With what it signs in, where the program does not read it from its environment itself.
    pub api_key: Option<ApiKey>,
}

/// A secret that is in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(pub String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

impl Start {
    pub(crate) fn is_fork(&self) -> bool {
        self.fork && self.resume.is_some()
    }

    /// `None`: people answer.
    pub(crate) fn unattended(&self) -> Option<&Unattended> {
        match &self.attended {
            Attended::People => None,
            Attended::Unattended(unattended) => Some(unattended),
        }
    }
}

/// What a driver has said of the turn that runs, for the next driver to continue from. Only the driver of the same agent reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(pub(crate) Value);

/// An order of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Prompt(Prompt),
    /// To a request that is open.
    Answer {
        /// Of the event that asked.
        request: String,
        reply: Reply,
    },
    Interrupt,
    SetMode(Mode),
    /// By its id in `models`.
    SetModel(String),
    /// Ends the agent in good order: its input is to be closed.
    Stop,
}

/// Something for the agent to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// A UUID of the host's.
    pub id: String,
    pub text: String,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// It is for the turn that runs.
    #[serde(default)]
    pub steer: bool,
}

/// An answer of a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Option {
        id: String,
        #[serde(default)]
        message: Option<String>,
    },
    /// For each question, by its id.
    Answers(BTreeMap<String, Vec<String>>),
    /// The person does not answer the question.
    Refuse {
        #[serde(default)]
        message: Option<String>,
    },
}

/// Why a command is not passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a turn is running; wait for its end")]
    Busy,
    #[error("the agent is not ready yet")]
    NotReady,
    #[error("the request is closed")]
    Closed,
    #[error("the request has no such option or question")]
    NoSuchOption,
    #[error("{0}")]
    Unsupported(&'static str),
}

/// How the agent's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// `None`: by a signal.
    pub code: Option<i32>,
    /// The end of its standard error, at most a few KiB.
    #[serde(default)]
    pub stderr: String,
}
