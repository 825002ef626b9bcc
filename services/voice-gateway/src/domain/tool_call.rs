//! A call of one of the agent's tools. Each one is recorded in its voice session before it is carried out.

use ensemble_types::ids::{RunId, UserId};
use ensemble_types::refs::IdOrRef;

/// The most calls of one voice session.
pub(crate) const MOST_CALLS: i64 = 1_000;

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolCall {
    Runs { active_only: bool, limit: u32 },
    Run(IdOrRef<RunId>),
    Sessions { active_only: bool, limit: u32 },
}

/// A call that may be carried out: it is recorded in an open voice session of this user.
pub(crate) struct Recorded {
    pub(crate) user: UserId,
}

impl ToolCall {
    /// The tool's name on the wire and in the record.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Runs { .. } => "runs.list",
            Self::Run(_) => "runs.show",
            Self::Sessions { .. } => "sessions.list",
        }
    }

    /// What it is about, if it is about one thing.
    pub(crate) fn subject(&self) -> Option<String> {
        match self {
            Self::Run(run) => Some(run.to_string()),
            Self::Runs { .. } | Self::Sessions { .. } => None,
        }
    }
}
