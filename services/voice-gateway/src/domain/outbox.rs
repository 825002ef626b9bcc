//! The queue of texts of one session: first in, first out, one in flight, each once.

use std::time::Duration;

/// What is delivered next.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Text { seq: i64, message_id: String, text: String, created_at: ensemble_types::time::Timestamp },
    Context { version: i64, body: String },
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text { seq, text, .. } => write!(f, "Text(seq {seq}, {} bytes)", text.len()),
            Self::Context { version, body } => write!(f, "Context(version {version}, {} bytes)", body.len()),
        }
    }
}

/// How an attempt to deliver went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The agent acknowledged the item itself.
    Acknowledged,
    /// The agent has been told where to fetch it, or a packet went out that nobody acknowledges.
    HandedOver,
    /// Not now, or not known: the same item again, under the same id.
    Later,
    /// The agent is not there.
    AgentGone,
}

/// How long to wait before attempt `attempts + 1`.
pub(crate) fn backoff(base: Duration, attempts: u32) -> Duration {
    base.saturating_mul(1 << attempts.min(4))
}
