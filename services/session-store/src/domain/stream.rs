//! What a live stream remembers between two reads, and why it ends.

use ensemble_types::ids::{SessionId, UserId};
use uuid::Uuid;

use super::access::Actor;
use super::public_link::TokenHash;

/// The reader of a stream.
#[derive(Clone)]
pub(crate) enum Audience {
    /// The owner, the recipient of a share, or the session's machine.
    Member(Actor),
    /// A reader with a public link and a view token. Does not see senders or their local ids.
    Public { link: TokenHash, view_token: String },
}

/// The parts of a session whose changes a stream reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionStamp {
    pub(crate) metadata_version: i64,
    pub(crate) agent_state_version: i64,
    pub(crate) ended: bool,
    pub(crate) key_epoch: i64,
    pub(crate) attention_version: i64,
    /// Why its machine cannot write, as the number in its row.
    pub(crate) cannot_write: Option<i16>,
    /// The process that hosts it: the one before learns so that it has to end.
    pub(crate) host: Option<Uuid>,
}

/// How far a stream has sent a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last message that was sent.
    pub(crate) seq: i64,
    /// The session as it was last sent.
    pub(crate) stamp: SessionStamp,
}

/// An event that may be long. All its readers get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LongEvent {
    Message {
        session: SessionId,
        seq: i64,
        is_public: bool,
    },
    /// A live frame.
    Frame {
        session: SessionId,
        digest: u64,
    },
    /// A session as one reader sees it, `None` for readers with a public link.
    Session {
        session: SessionId,
        reader: Option<UserId>,
        /// More can change than a [`SessionStamp`] shows, such as the reader's access level.
        digest: u64,
    },
}
