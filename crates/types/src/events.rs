//! The events of the streams (Server-Sent Events): the name after `event:`, and what is after `data:`, as JSON.
//!
//! They describe streams in the OpenAPI document. Names that a reader does not know belong to later versions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::hints::Hint;
use crate::links::{PublicMessage, PublicSession};
use crate::live::LiveFrame;
use crate::messages::Message;
use crate::pends::Pended;
use crate::sessions::Session;
use crate::voice::VoiceStatus;
use crate::voice_history::{VoiceToolCall, VoiceUtterance};

/// The data of the last event, `end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEnd {
    /// `terminal`: nothing more will come. `draining`, `unavailable`: connect again. `token_expired`, `token_revoked`,
    /// `unauthenticated`: sign in and connect again. Otherwise the next connection says what is wrong.
    pub reason: String,
}

/// An event of a session's stream. The id of a `message` is its `seq`; the others have none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum SessionEvent {
    Message(Box<Message>),
    /// Metadata, state, status or key have changed.
    Session(Box<Session>),
    /// Not stored, and some do not arrive.
    Live(LiveFrame),
    End(StreamEnd),
}

/// An event of the stream behind a public link. The id of a `message` is its `seq`; the others have none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum PublicSessionEvent {
    Message(PublicMessage),
    Session(PublicSession),
    Live(LiveFrame),
    End(StreamEnd),
}

/// An event of an account's stream. None has an id: after a connection anything may have changed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum AccountEvent {
    Hint(Hint),
    End(StreamEnd),
}

/// An event of a run's stream. The id of a `change` is the run's version.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum RunEvent {
    Change(Box<Pended>),
    End(StreamEnd),
}

/// An event of a voice session's stream. The id is `<seq of the newest utterance>.<seq of the newest tool call>`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum VoiceSessionEvent {
    /// With the connection, and with each change.
    Status(Box<VoiceStatus>),
    Utterance(VoiceUtterance),
    /// The agent called one of the server's tools.
    Tool(VoiceToolCall),
    End(StreamEnd),
}
