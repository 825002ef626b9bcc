//! The events of the streams (Server-Sent Events): the name after `event:`, and what is after `data:`, as JSON.
//!
//! They describe streams in the OpenAPI document. Names that a reader does not know belong to later versions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::hints::Hint;
use crate::links::{PublicMessage, PublicSession};
use crate::live::LiveFrame;
use crate::looks::LookAsked;
use crate::messages::Message;
use crate::pends::Pended;
use crate::sessions::Session;
use crate::voice::VoiceStatus;
use crate::voice_history::{VoiceToolCall, VoiceUtterance};

/// The data of the last event, `end`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StreamEnd {
    /// `terminal`, `deleted`, `session_deleted`, `link_ended`: nothing more will come, and the event has no `retry`. `draining`,
    /// `unavailable`: connect again. `token_expired`, `token_revoked`, `unauthenticated`: sign in and connect again.
    /// `access_revoked`: the next connection says what is wrong. A stream can also end without this event: connect again.
    pub reason: EndReason,
}

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    Terminal,
    Deleted,
    SessionDeleted,
    LinkEnded,
    AccessRevoked,
    Draining,
    Unavailable,
    TokenExpired,
    TokenRevoked,
    Unauthenticated,
}

impl EndReason {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Deleted => "deleted",
            Self::SessionDeleted => "session_deleted",
            Self::LinkEnded => "link_ended",
            Self::AccessRevoked => "access_revoked",
            Self::Draining => "draining",
            Self::Unavailable => "unavailable",
            Self::TokenExpired => "token_expired",
            Self::TokenRevoked => "token_revoked",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// Nothing more can come.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Terminal | Self::Deleted | Self::SessionDeleted | Self::LinkEnded)
    }
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
    /// A question to the machine that reads the stream. It comes once.
    Look(LookAsked),
    End(StreamEnd),
}

/// An event of a run's stream. The id of a `change` is the run's version.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", content = "data", rename_all = "lowercase")]
pub enum RunEvent {
    Change(Box<Pended>),
    End(StreamEnd),
}

/// An event of a voice session's stream. The id is `<seq of the newest utterance>.<seq of the newest tool call>`, with `.end` after
/// it when the session is over.
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
