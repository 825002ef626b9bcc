//! Items for the agent. Texts are delivered in order, one at a time, each once.

use std::time::Duration;

/// What is delivered next.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Text { seq: i64, message_id: String, text: String, created_at: ensemble_types::time::Timestamp, speech: Speech },
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

/// What a text is to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// A turn of the person, which it answers.
    Turn,
    /// Words that it speaks as they are. `interrupt`: at once, instead of after what it says just now.
    Say { interrupt: bool },
}

/// How an attempt to deliver went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The agent acknowledged the item itself.
    Acknowledged,
    /// The agent received the address to fetch it from, or a packet without acknowledgement was sent.
    HandedOver,
    /// It failed or the result is not known: the same item is sent again under the same id.
    Later,
    /// The agent is not there.
    AgentGone,
}

/// How long to wait after `attempts` failures.
pub(crate) fn backoff(base: Duration, attempts: u32) -> Duration {
    base.saturating_mul(1 << attempts.min(4))
}
