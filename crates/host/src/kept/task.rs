//! The task that a session is.

use ensemble_protocol::transcript::body::Usage;
use ensemble_protocol::transcript::words::{ErrorCode, StopReason};
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A prompt of the task that a session is, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskTurn {
    /// As a `localId`.
    pub(crate) prompt_id: String,
    /// The agent has begun with it.
    #[serde(default)]
    pub(crate) has_begun: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<TaskEnd>,
}

/// How the turn of a task ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskEnd {
    /// `None`: there was no turn.
    pub stop: Option<StopReason>,
    /// The last error of the turn.
    pub error: Option<ErrorCode>,
    pub retry_at: Option<Timestamp>,
    pub usage: Option<Usage>,
    pub cost_usd: Option<f64>,
    /// How often the agent was refused something.
    pub denials: u32,
    /// A person has interrupted it.
    #[serde(default)]
    pub by_person: bool,
}

impl TaskEnd {
    /// The agent has done what it was asked, and was refused nothing.
    pub(crate) fn is_good(&self) -> bool {
        self.stop == Some(StopReason::EndTurn) && self.denials == 0
    }
}
