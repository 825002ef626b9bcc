//! Waiting for a run: what to wait for, and what had changed when the wait ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::examples;
use crate::ids::{MachineId, RunId, TaskId};
use crate::refs::Ref;
use crate::runs::{Run, RunStatus, TaskError, TaskStatus, WaitingFor};

/// The event that ends a `pend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    /// The version differs from the cursor.
    #[default]
    Change,
    /// The run has ended.
    Terminal,
}

/// How to wait. Accepted in the body or in the query.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"waitFor": "terminal", "timeoutMs": 30000})))]
pub struct Pend {
    /// The run's version from the last response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[0-9]{1,18}$")]
    pub cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<WaitFor>,
    /// 0 to 120,000; the default is 30,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 120_000)]
    pub timeout_ms: Option<u32>,
}

/// What had changed when the wait ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::pended())))]
pub struct Pended {
    pub id: RunId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub status: RunStatus,
    pub terminal: bool,
    /// `false` when the wait timed out.
    pub changed: bool,
    /// The cursor for the next `pend`.
    pub cursor: String,
    /// Without its tasks.
    pub run: Run,
    /// At most 500.
    pub changed_tasks: Vec<ChangedTask>,
    /// More tasks changed than fit in here. Read the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The current state of a task that changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedTask {
    pub id: TaskId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub status: TaskStatus,
    pub attempt: u32,
    pub waiting_for: Option<WaitingFor>,
    pub waiting_reason: Option<String>,
    /// The machine to which the task is pinned, or on which it runs or ran.
    pub machine_id: Option<MachineId>,
    /// The first 512 characters of its message.
    pub error: Option<TaskError>,
}
