//! What a look asks.

use std::time::Duration;

use ensemble_types::ids::SessionId;
use ensemble_types::time::Timestamp;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::encoding::{decode_array, encode};
use super::super::{Result, SealError};
use crate::transcript::body::KnownList;
use crate::transcript::rules::Right;
use crate::transcript::words::words;

const VERSION: u32 = 1;
/// How far the asker's clock may be from the machine's.
const CLOCK: Duration = Duration::from_secs(5 * 60);

/// The body of a question. Members that are not known are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The session in whose directory it looks. The looks at a machine have none.
    pub session: Option<SessionId>,
    /// 16 random bytes, base64url, so that no two questions have one digest.
    pub nonce: String,
    /// The asker's clock.
    pub at: Timestamp,
    /// The newest list of the owner that the asker knew.
    pub list: KnownList,
    pub look: Look,
}

/// What is looked at, and what is asked about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "look", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Look {
    /// A part of what a cut request leaves out. Answered by a [`Part`](super::Part).
    Request {
        request_id: String,
        what: Whole,
        #[serde(default, skip_serializing_if = "is_first")]
        from: u64,
    },
    /// The names below the session's directory, or below a directory in it. Answered by [`Names`](super::Names).
    Names {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
        depth: Depth,
    },
    /// A part of a file below the session's directory. Answered by a [`FilePart`](super::FilePart).
    File {
        path: String,
        #[serde(default, skip_serializing_if = "is_first")]
        from: u64,
    },
    /// What git says of the session's directory. Answered by a [`GitState`](super::GitState), a [`Part`](super::Part) or a
    /// [`GitLog`](super::GitLog).
    Git {
        what: GitWhat,
        since: Since,
        /// Of a diff: the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(default, skip_serializing_if = "is_first")]
        from: u64,
    },
    /// The directories below this one in which a session may begin; without it, the machine's roots and those that were used last.
    /// Answered by [`Directories`](super::Directories).
    Directories {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        below: Option<String>,
    },
    /// The conversations that were begun with the agents themselves in a directory. Answered by
    /// [`Conversations`](super::Conversations), and with an id, from that turn on, by [`Turns`](super::Turns).
    Conversations {
        directory: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default, skip_serializing_if = "is_first")]
        from: u64,
    },
    /// What this version does not know, or cannot read.
    #[serde(other)]
    Unknown,
}

words! {
    /// A text that a cut request leaves out.
    Whole { Detail = "detail", Diff = "diff", }
}

words! {
    GitWhat {
        State = "state",
        /// Of one file, as tasks have it.
        Diff = "diff",
        /// The last ten commits.
        Log = "log",
    }
}

words! {
    /// With what the directory is compared.
    Since {
        /// With the last commit.
        Now = "now",
        /// With what was there when the session began.
        Begin = "begin",
    }
}

/// How far below a directory names are asked for: `1` or `"all"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Depth {
    One,
    All,
}

#[derive(Serialize, Deserialize)]
struct Head {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    nonce: String,
    at: Timestamp,
    list: KnownList,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    look: &'a Look,
}

impl Question {
    pub fn new(session: Option<SessionId>, list: KnownList, look: Look, now: Timestamp) -> Self {
        let mut nonce = [0; 16];
        rand::rngs::OsRng.fill_bytes(&mut nonce);
        Self { session, nonce: encode(&nonce), at: now, list, look }
    }

    /// The body as it is signed. It is written once and kept: the answer names its digest.
    pub fn write(&self) -> Result<String> {
        let Self { session, nonce, at, list, look } = self;
        let head = Head { v: VERSION, session: *session, nonce: nonce.clone(), at: *at, list: list.clone() };
        serde_json::to_string(&Written { head, look }).map_err(|_| SealError::Format)
    }

    /// Reads a body. A look, or a version, that is not known becomes [`Look::Unknown`].
    pub fn read(body: &str) -> Result<Self> {
        let Head { v, session, nonce, at, list } = serde_json::from_str(body).map_err(|_| SealError::Format)?;
        decode_array::<16>(&nonce)?;
        let look = serde_json::from_str(body).ok().filter(|_| v == VERSION);
        Ok(Self { session, nonce, at, list, look: look.unwrap_or(Look::Unknown) })
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        now <= self.at.plus(CLOCK) && self.at <= now.plus(CLOCK)
    }
}

impl Look {
    /// The word by which `state.does`, or what a machine says that it does, names this look.
    pub const fn does(&self) -> Option<&'static str> {
        Some(match self {
            Self::Request { .. } => "look.request",
            Self::Names { .. } => "look.names",
            Self::File { .. } => "look.file",
            Self::Git { .. } => "look.git",
            Self::Directories { .. } => "look.directories",
            Self::Conversations { .. } => "look.conversations",
            Self::Unknown => return None,
        })
    }

    /// Whether it looks at what belongs to a session, and not at the machine.
    pub const fn is_of_session(&self) -> bool {
        !matches!(self, Self::Directories { .. } | Self::Conversations { .. } | Self::Unknown)
    }

    /// The least right with which it is answered. What a guest is shown is less: `ignored` names and files that git does not track are
    /// the owner's.
    pub const fn needs(&self) -> Right {
        if self.is_of_session() { Right::Approve } else { Right::Linked }
    }
}

impl TryFrom<Value> for Depth {
    type Error = &'static str;

    fn try_from(value: Value) -> std::result::Result<Self, Self::Error> {
        match (value.as_u64(), value.as_str()) {
            (Some(1), _) => Ok(Self::One),
            (_, Some("all")) => Ok(Self::All),
            _ => Err("must be 1 or \"all\""),
        }
    }
}

impl From<Depth> for Value {
    fn from(depth: Depth) -> Self {
        match depth {
            Depth::One => 1.into(),
            Depth::All => "all".into(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_first(from: &u64) -> bool {
    *from == 0
}
