//! A submitted run that has passed every check, so that the rest of the service need not check it again.

use std::collections::HashSet;
use std::iter::zip;
use std::time::Duration;

use ensemble_types::ids::{MachineId, RunId, TaskId};
use ensemble_types::runs::{
    CreateRun, CreateTask, Isolation, Permission, Provider, RetryPolicy, SealedTask, Signed, TaskSession,
};
use ensemble_types::text::Text;

use super::base::find_bases;
use super::draft_checks::{FieldErrors, check, check_cost, check_ids, check_permission, check_templates};
use super::sealed_checks::{check_outputs, check_sealed};
use super::{InvalidGraph, Retry, TaskGraph, Template};

const MAX_TASKS: usize = 10_000;
const MAX_DEPENDENCIES: usize = 100_000;
const DEFAULT_CONCURRENCY: u32 = 4;
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 3_600_000;
/// A lease with a longer signed task counts as one of the few large ones of an answer.
const LONG_BODY: usize = 32 << 10;
/// What a task, a dependency and an attempt count for the account's quota in addition to their texts: about as much as their rows and
/// index entries take. Without it, many small tasks would fill the disk and count almost nothing.
const TASK_BYTES: i64 = 512;
const DEPENDENCY_BYTES: i64 = 128;
pub(crate) const ATTEMPT_BYTES: i64 = 512;

/// A run that can be stored.
#[derive(Clone, Debug)]
pub(crate) struct RunDraft {
    /// As its client has chosen it.
    pub(crate) id: Option<RunId>,
    /// Its client has chosen no id, also of no task.
    is_drawn: bool,
    pub(crate) title: Option<String>,
    pub(crate) max_concurrency: u32,
    pub(crate) spread: bool,
    /// The machine of the tasks that do not name one.
    pub(crate) machine: Option<MachineId>,
    pub(crate) tasks: Vec<TaskDraft>,
    pub(crate) graph: TaskGraph,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskDraft {
    pub(crate) id: TaskId,
    pub(crate) key: Option<String>,
    pub(crate) title: Option<String>,
    /// Empty when the task is sealed.
    pub(crate) prompt: String,
    /// What its machine does, sealed for it.
    pub(crate) sealed: Option<SealedTask>,
    pub(crate) session: Option<TaskSession>,
    /// The task as a device of the owner has signed it, for its machine.
    pub(crate) signed: Option<Signed>,
    /// The prompt contains placeholders for the outputs of other tasks, or the signed task is long: a lease of it is a large one.
    pub(crate) templated: bool,
    pub(crate) provider: Provider,
    pub(crate) model: Option<String>,
    pub(crate) working_directory: Option<String>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) permission: Option<Permission>,
    /// Patterns of tools that the agent may use as well.
    pub(crate) allowed_tools: Vec<String>,
    /// The task fails when the agent was refused something.
    pub(crate) fail_on_denial: bool,
    pub(crate) isolation: Isolation,
    /// What its worktree begins with, as it was submitted.
    pub(crate) base: Option<String>,
    /// The task that `base` names, by its position.
    pub(crate) base_task: Option<usize>,
    pub(crate) max_cost_usd: Option<f64>,
}

/// Why a run is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidRun {
    /// JSON Pointers, each with what is wrong there.
    #[error("some fields are invalid")]
    Fields(Vec<(String, String)>),
    #[error(transparent)]
    Graph(#[from] InvalidGraph),
}

impl RunDraft {
    pub(crate) fn new(request: CreateRun) -> Result<Self, InvalidRun> {
        let mut errors = FieldErrors::default();
        let count = request.tasks.len();
        errors.require((1..=MAX_TASKS).contains(&count), "/tasks", || {
            format!("must be 1 to {MAX_TASKS} tasks, not {count}")
        });
        let max_concurrency = request.max_concurrency.unwrap_or(DEFAULT_CONCURRENCY);
        errors.require((1..=64).contains(&max_concurrency), "/maxConcurrency", || "must be 1 to 64".to_owned());
        check_ids(&request, &mut errors);
        check_permission("", request.permission, request.allowed_tools.as_deref(), &mut errors);
        check_cost("", request.max_cost_usd, &mut errors);
        let edges: usize = request.tasks.iter().map(|task| task.depends_on.len()).sum();
        errors.require(edges <= MAX_DEPENDENCIES, "/tasks", || {
            format!("must name at most {MAX_DEPENDENCIES} dependencies in all")
        });
        if !errors.is_empty() {
            return Err(InvalidRun::Fields(errors.into_fields()));
        }
        for (at, task) in request.tasks.iter().enumerate() {
            check(task, at, &mut errors);
            check_sealed(task, at, request.machine_id.is_some(), &mut errors);
        }
        if !errors.is_empty() {
            return Err(InvalidRun::Fields(errors.into_fields()));
        }
        let named: Vec<(Option<&str>, &[String])> =
            request.tasks.iter().map(|task| (task.task_key.as_deref(), task.depends_on.as_slice())).collect();
        let graph = TaskGraph::new(&named)?;
        check_outputs(&request.tasks, &graph)?;
        check_templates(&request.tasks, &graph, &mut errors);
        let bases = find_bases(&request.tasks, &graph, &mut errors);
        if !errors.is_empty() {
            return Err(InvalidRun::Fields(errors.into_fields()));
        }
        let defaults = Defaults {
            machine: request.machine_id,
            permission: request.permission,
            max_cost_usd: request.max_cost_usd,
            allowed_tools: strings(request.allowed_tools.unwrap_or_default()),
        };
        let is_drawn = request.id.is_none() && request.tasks.iter().all(|task| task.id.is_none());
        Ok(Self {
            id: request.id,
            is_drawn,
            title: request.title.map(|title| title.into_string()),
            max_concurrency,
            spread: request.spread.unwrap_or(false),
            tasks: zip(request.tasks, bases)
                .map(|(task, base_task)| TaskDraft { base_task, ..TaskDraft::new(task, &defaults) })
                .collect(),
            machine: defaults.machine,
            graph,
        })
    }

    /// Gives the tasks other ids. `false`: their client has chosen some, and only the client chooses others.
    pub(crate) fn draw_again(&mut self) -> bool {
        if self.is_drawn {
            self.tasks.iter_mut().for_each(|task| task.id = TaskId::generate());
        }
        self.is_drawn
    }

    /// What the run counts for the account's quota when it is submitted.
    pub(crate) fn stored_bytes(&self) -> i64 {
        let dependencies: usize = (0..self.tasks.len()).map(|at| self.graph.dependencies(at).len()).sum();
        let rows = count(self.tasks.len()) * TASK_BYTES + count(dependencies) * DEPENDENCY_BYTES;
        rows + count(self.tasks.iter().map(TaskDraft::text_bytes).sum::<usize>() + length(self.title.as_ref()))
    }

    /// The machines that tasks are pinned to, each with the position of the first such task.
    pub(crate) fn machines(&self) -> Vec<(usize, MachineId)> {
        let mut seen = HashSet::new();
        let pinned = self.tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.machine.clone()?)));
        pinned.filter(|(_, machine)| seen.insert(machine.clone())).collect()
    }
}

/// What a run says for the tasks that do not say it themselves.
struct Defaults {
    machine: Option<MachineId>,
    permission: Option<Permission>,
    allowed_tools: Vec<String>,
    max_cost_usd: Option<f64>,
}

impl TaskDraft {
    fn new(task: CreateTask, defaults: &Defaults) -> Self {
        // What a run says for its tasks is not for those that say it under their seal.
        let is_clear = task.sealed.is_none();
        let prompt = task.prompt.map(Text::into_string).unwrap_or_default();
        let signed = Signed::of(task.signature, task.signed_body).ok().flatten();
        let is_long = signed.as_ref().is_some_and(|signed| signed.signed_body.len() > LONG_BODY);
        let templated = is_long || !Template::parse(&prompt).is_plain(&prompt);
        Self {
            id: task.id.unwrap_or_else(TaskId::generate),
            key: task.task_key.map(|key| key.into_string()),
            title: task.title.map(|title| title.into_string()),
            templated,
            prompt,
            sealed: task.sealed,
            session: task.session,
            signed,
            provider: task.provider,
            model: task.model.map(|model| model.into_string()),
            working_directory: task.working_directory.map(|path| path.into_string()),
            machine: task.machine_id.or_else(|| defaults.machine.clone()),
            timeout: Duration::from_millis(task.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            retry: task.retry.map_or_else(Retry::default, retry),
            permission: task.permission.or(defaults.permission.filter(|_| is_clear)),
            allowed_tools: match task.allowed_tools {
                Some(tools) => strings(tools),
                None if is_clear => defaults.allowed_tools.clone(),
                None => Vec::new(),
            },
            fail_on_denial: task.fail_on_denial.unwrap_or(false),
            isolation: task.isolation.unwrap_or_default(),
            base: task.base.map(|base| base.into_string()),
            base_task: None,
            max_cost_usd: task.max_cost_usd.or(defaults.max_cost_usd.filter(|_| is_clear)),
        }
    }

    fn text_bytes(&self) -> usize {
        let Self { key, title, model, working_directory, base, .. } = self;
        let optional: usize =
            [key, title, model, working_directory, base].into_iter().map(|text| length(text.as_ref())).sum();
        let tools: usize = self.allowed_tools.iter().map(String::len).sum();
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.len());
        let signed = self.signed.as_ref().map_or(0, |signed| signed.signed_body.len());
        self.prompt.len() + sealed + signed + optional + tools
    }
}

fn strings(texts: Vec<Text<1, 256>>) -> Vec<String> {
    texts.into_iter().map(Text::into_string).collect()
}

fn length(text: Option<&String>) -> usize {
    text.map_or(0, String::len)
}

/// A body has at most 16 MiB, so sizes are far from the largest number.
fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

fn retry(policy: RetryPolicy) -> Retry {
    Retry {
        max_attempts: i32::try_from(policy.max_attempts).unwrap_or(1),
        backoff: Duration::from_millis(policy.backoff_ms.unwrap_or(1_000)),
        factor: policy.backoff_factor.unwrap_or(2.0),
    }
}

#[cfg(test)]
mod tests;
