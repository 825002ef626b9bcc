//! Leases: a runner's exclusive right to one attempt of a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::changes::{Isolation, LeaseWaitsFor, ReportedChanges};
use crate::examples;
use crate::ids::{LeaseId, MachineId, RunId, SessionId, TaskId};
use crate::runs::{Permission, PermissionDenials, Provider, SealedTask, TaskError, TaskSession, TaskStatus, Usage};
use crate::signatures::Signed;
use crate::text::{Blob, Text};
use crate::time::Timestamp;

/// A runner's request for work. The service may hold it open until there is some.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"machineId": "laptop", "providers": ["claude"], "capacity": 4, "waitMs": 1000})))]
pub struct LeaseRequest {
    pub machine_id: MachineId,
    /// The provider programs that this runner can start, at most 16.
    #[schema(max_items = 16)]
    pub providers: Vec<Provider>,
    /// How many attempts it can take now: 0 to 64. With 0 it asks for orders only.
    #[schema(maximum = 64)]
    pub capacity: u32,
    /// How many attempts it runs at once at most: 1 to 64. With it the service can say that a machine is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub slots: Option<u32>,
    /// How long the service may hold the request open while there is no work: 0 to 60,000. It answers after 15 s at the
    /// latest, so that a machine that fell asleep gets nothing.
    #[serde(default)]
    #[schema(maximum = 60_000)]
    pub wait_ms: u64,
    /// The orders that it is carrying out, at most 64. They are not repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub taken_orders: Vec<Text<1, 64>>,
}

/// The leases that were granted. The list can be empty.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeasePage, examples(json!(examples::leases())))]
pub struct Leases {
    pub leases: Vec<Lease>,
    /// What the runner should do about the attempts that it runs, and about the worktrees that it keeps.
    #[serde(default)]
    pub orders: Vec<Order>,
}

/// What a runner should do at once. An order to cancel is repeated until a heartbeat shows that it was received, any other
/// one until its result is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The same when the order is repeated.
    pub id: String,
    pub kind: OrderKind,
    pub run_id: RunId,
    pub task_id: TaskId,
    /// The attempt that is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<i64>,
    /// What a device of the owner has signed. Only of `apply` and `discard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
}

/// The kind of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderKind {
    /// End the attempt.
    Cancel,
    /// Merge what the task changed into the working tree that its worktree was made from.
    Apply,
    /// Remove the task's worktree and its branch.
    Discard,
}

/// One attempt of a task, granted to a runner.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    pub id: LeaseId,
    /// Increases with each attempt. A call with an older fence changes nothing.
    pub fence: i64,
    pub run_id: RunId,
    pub task_id: TaskId,
    pub attempt: u32,
    pub provider: Provider,
    pub model: Option<String>,
    /// Empty when the task is sealed.
    pub prompt: String,
    /// What the machine does, sealed for it. Only what its owner has signed counts, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<SealedTask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskSession>,
    /// The task as a device of the owner has signed it. A runner that takes signed tasks only does this, and not what the other
    /// members say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
    /// With `followUp`: what the owner said to the agent, signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_message: Option<Signed>,
    /// With `signed`: the outputs that its prompt has placeholders for, by task key. The runner fills them in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, TaskOutput>,
    pub working_directory: Option<String>,
    pub timeout_ms: u64,
    /// What the attempt may cost: the rest of the task's `maxCostUsd`. The runner stops an agent that reports more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// What the attempts that used the session to resume have cost. Some programs report it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_cost_usd: Option<f64>,
    /// What the agent may do without asking. `null`: as the runner's configuration says.
    pub permission: Option<Permission>,
    #[serde(default)]
    pub allowed_tools: Vec<String>,
    #[serde(default)]
    pub isolation: Isolation,
    /// The git ref that a new worktree begins with. `HEAD` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The task whose worktree a new worktree begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_task: Option<TaskId>,
    /// The provider's session of the last attempt on this machine.
    pub resume: Option<String>,
    /// The prompt continues that session and makes no sense without it. Otherwise the agent of a resumed task is informed that it
    /// was interrupted.
    #[serde(default)]
    pub follow_up: bool,
    pub traceparent: Option<String>,
    pub expires_at: Timestamp,
}

/// What a task has put out, for the prompt of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskOutput {
    pub task_id: TaskId,
    pub output: String,
}

/// A heartbeat: the attempt is still running.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"fence": 1})))]
pub struct LeaseHeartbeat {
    pub fence: i64,
    /// The provider's session, as soon as it is known. The next attempt resumes it, also when this machine is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_session_id: Option<Text<1, 256>>,
    /// The attempt waits for this. While it is given, the task's timeout stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<LeaseWaitsFor>,
    /// The live session of the task, as soon as it exists. Ignored for tasks that are no sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// When the lease now expires, and whether the runner should end the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"cancelRequested": false, "expiresAt": "2026-03-26T00:00:00.000Z"})))]
pub struct LeaseBeat {
    pub expires_at: Timestamp,
    pub cancel_requested: bool,
}

/// A piece of the attempt's output.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"fence": 1, "offset": 0, "data": "Reading the tests.\n"})))]
pub struct LeaseOutput {
    pub fence: i64,
    /// The offset of `data` in bytes of UTF-8 since the start of the attempt.
    pub offset: u64,
    pub data: Blob<0, 1_048_576>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FinishStatus {
    Completed,
    Failed,
    Cancelled,
    Timeout,
    /// The machine cannot run the task, and the agent was not started. Another machine may.
    Refused,
    /// The provider's usage limit is reached on this machine. The machine gets no task of that provider before `resumeAt`.
    Quota,
}

/// The runner's report of how the attempt ended. It can be repeated.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"fence": 1, "status": "completed", "exitCode": 0, "outputSummary": "Done."})))]
pub struct LeaseFinish {
    pub fence: i64,
    pub status: FinishStatus,
    /// Only with the status `quota`: when the provider can be used again, at most 7 days ahead. A time in the past is now. When
    /// absent, the machine waits 5 minutes; it waits at least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_summary: Option<Blob<0, 16_384>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_session_id: Option<Text<1, 256>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What the agent was allowed to do without asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_denials: Option<PermissionDenials>,
    /// What the attempt changed. Its diff is sent before the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ReportedChanges>,
    /// The live session that the task has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<LeaseError>,
}

/// Why an attempt did not complete, as the runner describes it. The task shows it as its error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseError {
    /// Stable, upper case: `TIMEOUT`, `CRASHED`, …
    pub code: Text<1, 64>,
    pub message: Text<0, 4_096>,
}

impl From<LeaseError> for TaskError {
    fn from(error: LeaseError) -> Self {
        Self { code: error.code.into_string(), message: error.message.into_string() }
    }
}

/// The service accepted the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"taskStatus": "completed"})))]
pub struct LeaseFinished {
    /// The state of the task after the report: `queued` when it will be tried again.
    pub task_status: TaskStatus,
}

/// The service accepted the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"nextOffset": 19, "truncated": false})))]
pub struct LeaseOutputTaken {
    /// The offset of the next piece.
    pub next_offset: u64,
    /// The output exceeds the service's limit, so some of it was not stored.
    pub truncated: bool,
}
