//! Runs: tasks that depend on each other, done by coding agents on the user's machines.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use crate::changes::{ChangesState, Isolation, TaskChanges};
use crate::examples;
use crate::ids::{MachineId, RunId, SessionId, TaskId};
pub use crate::pends::{ChangedTask, Pend, Pended, WaitFor};
pub use crate::permissions::{Permission, PermissionDenial, PermissionDenials};
pub use crate::provider::Provider;
use crate::refs::Ref;
use crate::signatures::SignedBodyText;
pub use crate::signatures::{Signed, SignedBody, TaskSignature};
pub use crate::states::{RunStatus, TaskStatus};
pub use crate::task_sessions::{PromptText, SealedTask, TaskSession};
use crate::text::Text;
use crate::time::Timestamp;

/// A plan: 1 to 10,000 tasks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({
    "id": "01932b5e-7b1a-7c3e-8f00-000000000005",
    "title": "Tidy up",
    "tasks": [{"id": "01932b5e-7b1a-7c3e-8f00-000000000006", "taskKey": "fix", "provider": "claude", "prompt": "Fix the failing test.", "workingDirectory": "/home/ada/project"}, {"provider": "codex", "prompt": "Review: {{tasks.fix.output}}", "dependsOn": ["fix"]}],
})))]
pub struct CreateRun {
    /// A UUID of version 7 that the client chooses. The same id with the same body again is the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RunId>,
    #[schema(min_items = 1, max_items = 10_000)]
    pub tasks: Vec<CreateTask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text<0, 256>>,
    /// How many tasks may run at once: 1 to 64, 4 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub max_concurrency: Option<u32>,
    /// Allows tasks to run on several machines. Otherwise all tasks run on the machine that took the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<bool>,
    /// Pins the tasks to this machine that do not name another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// For tasks that do not name their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// For tasks that do not name their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub allowed_tools: Option<Vec<Text<1, 256>>>,
    /// For tasks that do not name their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0, maximum = 1_000_000)]
    pub max_cost_usd: Option<f64>,
}

/// One task of a plan.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateTask {
    /// A UUID of version 7 that the client chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<TaskId>,
    /// The agent's instructions. `{{tasks.<taskKey>.output}}` is replaced by that dependency's output. Every task has them, or `sealed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptText>)]
    pub prompt: Option<Text<1, 65_536>>,
    pub provider: Provider,
    /// When absent or `default`, the provider program chooses the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/\[\]-]{0,127}$")]
    pub model: Option<Text<1, 128>>,
    /// Absolute, without `..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^/", max_length = 4096)]
    pub working_directory: Option<Text<1, 4_096>>,
    /// Task keys, or zero-based positions as text, of other tasks in the same plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub depends_on: Vec<String>,
    /// The task's name within the plan: `[A-Za-z_][A-Za-z0-9_-]{0,63}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
    pub task_key: Option<Text<1, 64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text<0, 256>>,
    /// Pins the task to this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// 1 s to 24 h; the default is one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1_000, maximum = 86_400_000)]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// What the agent may do without asking. `ask` is refused, because no person could answer. When absent, the runner's
    /// configuration decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// Patterns of tools that the agent may use as well, in its own words. The runner's configuration must contain each of
    /// them word for word, or `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64)]
    pub allowed_tools: Option<Vec<Text<1, 256>>>,
    /// Fails the task with `PERMISSION_DENIED` when the agent was refused something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_denial: Option<bool>,
    /// Where the agent works: `none` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// With the isolation `worktree`: what the worktree begins with. A key of `dependsOn`, or else a git ref. `HEAD` when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9_@][A-Za-z0-9._/@+=-]{0,199}$")]
    pub base: Option<Text<1, 200>>,
    /// What the attempts of the task may cost together, as far as the provider reports it: more than 0, at most 1,000,000. The
    /// task fails with `COST_LIMIT_REACHED` when they have cost more. What a person starts, a retry of the run or a message to the
    /// task, may cost as much again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(exclusive_minimum = 0, maximum = 1_000_000)]
    pub max_cost_usd: Option<f64>,
    /// In place of `prompt`, `model`, `workingDirectory`, `permission`, `allowedTools`, `isolation` and `base`: what the machine
    /// does, sealed for it and signed by its owner. It needs `machineId` and `session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<SealedTask>,
    /// Only with `sealed`, and only `start`: this version has no tasks with `true` yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskSession>,
    /// A device of the owner has signed `signedBody`. A machine that takes signed tasks only does what is in there, whatever the
    /// other fields say. Not with `sealed`, which has a signature of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<TaskSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SignedBodyText>)]
    pub signed_body: Option<SignedBody>,
}

impl CreateTask {
    /// A task of which nothing else is said.
    pub fn of(provider: Provider) -> Self {
        Self {
            id: None,
            prompt: None,
            provider,
            model: None,
            working_directory: None,
            depends_on: Vec::new(),
            task_key: None,
            title: None,
            machine_id: None,
            timeout_ms: None,
            retry: None,
            permission: None,
            allowed_tools: None,
            fail_on_denial: None,
            isolation: None,
            base: None,
            max_cost_usd: None,
            sealed: None,
            session: None,
            signature: None,
            signed_body: None,
        }
    }
}

/// How often and after which pauses a failed task is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// 1 to 10, including the first attempt.
    #[schema(minimum = 1, maximum = 10)]
    pub max_attempts: u32,
    /// At most an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 3_600_000)]
    pub backoff_ms: Option<u64>,
    /// 1 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1.0, maximum = 10.0)]
    pub backoff_factor: Option<f64>,
}

/// What a task is waiting for: `directory` when it is leased, anything else when it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WaitingFor {
    Dependencies,
    /// No suitable runner has asked for work recently.
    Machine,
    /// The run's `maxConcurrency` is reached.
    Concurrency,
    /// The pause before the next attempt.
    Backoff,
    /// The provider's usage limit is reached on every machine that could run it.
    Quota,
    /// Another task of the same machine works in the directory.
    Directory,
    /// A person is to answer what the agent asks in the task's session.
    Input,
}

/// The usage of an attempt, as far as the provider reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(default)]
    pub input_tokens: Option<u64>,
    #[serde(default)]
    pub output_tokens: Option<u64>,
    #[serde(default)]
    #[schema(minimum = 0)]
    pub cost_usd: Option<f64>,
}

/// Why a task did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    /// Stable, upper case: `TIMEOUT`, `MACHINE_LOST`, `RUNNER_STOPPED`, …
    pub code: String,
    pub message: String,
}

/// A machine handed a task back, because it could not run it. Nothing was spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub machine_id: MachineId,
    /// Stable, upper case: `WORKING_DIRECTORY_NOT_FOUND`, `PROVIDER_NOT_SIGNED_IN`, …
    pub code: String,
    pub message: String,
    pub at: Timestamp,
}

/// The number of tasks in each state. Dispatching counts as running, dependency_failed as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    pub total: u32,
    pub queued: u32,
    pub running: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
}

/// A run. Lists and `pend` leave out the tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub id: RunId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub title: Option<String>,
    pub status: RunStatus,
    pub cancel_reason: Option<String>,
    pub max_concurrency: u32,
    pub spread: bool,
    /// The machine of the tasks that do not name one: as submitted, or the one that took the first of them.
    pub machine_id: Option<MachineId>,
    pub summary: RunSummary,
    /// Increases with every change of the run or one of its tasks.
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// In the order in which they were submitted. Absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tasks: Option<Vec<Task>>,
}

/// A run with all its tasks, as the routes of one run answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(examples(json!(examples::whole_run())))]
pub struct WholeRun {
    #[serde(flatten)]
    pub run: Run,
    /// In the order in which they were submitted.
    pub tasks: Vec<Task>,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!(examples::task())))]
pub struct Task {
    pub id: TaskId,
    /// Short, and taken wherever the id is in a path.
    #[serde(rename = "ref")]
    pub reference: Ref,
    pub task_key: Option<String>,
    pub title: Option<String>,
    /// `null` when the task is sealed.
    pub prompt: Option<String>,
    /// The task as a device of the owner has signed it. What is shown of a task is taken from here, once it was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub signed: Option<Signed>,
    /// How the task is a live session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskSession>,
    /// The live session, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub provider: Provider,
    pub model: Option<String>,
    pub working_directory: Option<String>,
    /// The machine to which the task is pinned, or on which it runs or ran.
    pub machine_id: Option<MachineId>,
    pub depends_on: Vec<TaskId>,
    pub status: TaskStatus,
    /// 0 before the first lease.
    pub attempt: u32,
    pub waiting_for: Option<WaitingFor>,
    /// Why it waits, for people: at most 512 characters. It names machines by their ids.
    pub waiting_reason: Option<String>,
    pub error: Option<TaskError>,
    /// The permission that the agent had, or will ask for.
    pub permission: Option<Permission>,
    #[serde(default)]
    pub allowed_tools: Vec<String>,
    pub permission_denials: Option<PermissionDenials>,
    /// Where the agent works.
    #[serde(default)]
    pub isolation: Isolation,
    pub base: Option<String>,
    /// What the last attempt that ended changed. `null` when its machine did not say it, for example outside of git.
    pub changes: Option<TaskChanges>,
    /// The machines that could not run it, at most 32.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    pub output_summary: Option<String>,
    pub exit_code: Option<i32>,
    /// Of all attempts together.
    pub usage: Option<Usage>,
    /// What its attempts may cost together. Only kept with providers that report what they cost.
    pub max_cost_usd: Option<f64>,
    pub provider_session_id: Option<String>,
    /// A task that it depends on was continued after this one had begun, so its result may be out of date.
    #[serde(default)]
    pub stale: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

impl Task {
    /// How it is called: by its title, its key, or its number from 1 on.
    pub fn called(&self, number: usize) -> String {
        self.title.clone().or_else(|| self.task_key.clone()).unwrap_or_else(|| format!("task {}", number + 1))
    }

    /// The session in which a person is to answer what its agent asks.
    pub fn asks_in(&self) -> Option<SessionId> {
        let asks = self.status == TaskStatus::Running && self.waiting_for == Some(WaitingFor::Input);
        self.session_id.filter(|_| asks)
    }
}

/// Another message to the agent of a task that has ended. The agent continues its conversation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"messageId": "3", "text": "Also update the documentation."})))]
pub struct TaskMessage {
    pub text: Text<1, 65_536>,
    /// Chosen by the client. A message of the task with the same id does nothing again.
    pub message_id: Text<1, 128>,
    /// As with tasks: the machine may take only what a device of the owner has signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<TaskSignature>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SignedBodyText>)]
    pub signed_body: Option<SignedBody>,
}

/// A page of runs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"runs": [examples::run()], "nextCursor": null})))]
pub struct RunPage {
    pub runs: Vec<Run>,
    pub next_cursor: Option<String>,
}

/// Why a run should be cancelled.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"reason": "No longer needed"})))]
pub struct CancelRun {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<0, 512>>,
}
