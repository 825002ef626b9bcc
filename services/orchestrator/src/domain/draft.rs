//! A run as it was submitted, made sure of.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::runs::{CreateRun, CreateTask, Provider, RetryPolicy};

use super::{BadGraph, Retry, TaskGraph, Template};

const TASKS: usize = 10_000;
const DEPENDENCIES_OF_ONE: usize = 256;
const DEPENDENCIES: usize = 100_000;
const CONCURRENCY: u32 = 4;
const TIMEOUT_MS: u64 = 3_600_000;
/// More mistakes than these need not be told at once.
const TOLD: usize = 20;

/// A run that can be made.
#[derive(Clone, Debug)]
pub(crate) struct RunDraft {
    pub(crate) title: Option<String>,
    pub(crate) max_concurrency: u32,
    pub(crate) spread: bool,
    pub(crate) tasks: Vec<TaskDraft>,
    pub(crate) graph: TaskGraph,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskDraft {
    pub(crate) id: TaskId,
    pub(crate) key: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) prompt: String,
    /// The prompt has places for outputs.
    pub(crate) templated: bool,
    pub(crate) provider: Provider,
    pub(crate) model: Option<String>,
    pub(crate) working_directory: Option<String>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
}

/// Why a run cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRun {
    /// JSON Pointers and what is wrong there.
    #[error("some fields are wrong")]
    Fields(Vec<(String, String)>),
    #[error(transparent)]
    Graph(#[from] BadGraph),
}

impl RunDraft {
    pub(crate) fn new(request: CreateRun) -> Result<Self, BadRun> {
        let mut faults = Faults::default();
        let count = request.tasks.len();
        faults.unless((1..=TASKS).contains(&count), "/tasks", || format!("must be 1 to {TASKS} tasks, not {count}"));
        let max_concurrency = request.max_concurrency.unwrap_or(CONCURRENCY);
        faults.unless((1..=64).contains(&max_concurrency), "/maxConcurrency", || "must be 1 to 64".to_owned());
        let edges: usize = request.tasks.iter().map(|task| task.depends_on.len()).sum();
        faults.unless(edges <= DEPENDENCIES, "/tasks", || format!("name more than {DEPENDENCIES} dependencies"));
        if !faults.0.is_empty() {
            return Err(BadRun::Fields(faults.0));
        }
        for (at, task) in request.tasks.iter().enumerate() {
            check(task, at, &mut faults);
        }
        if !faults.0.is_empty() {
            return Err(BadRun::Fields(faults.0));
        }
        let named: Vec<(Option<&str>, &[String])> =
            request.tasks.iter().map(|task| (task.task_key.as_deref(), task.depends_on.as_slice())).collect();
        let graph = TaskGraph::new(&named)?;
        check_templates(&request.tasks, &graph, &mut faults);
        if !faults.0.is_empty() {
            return Err(BadRun::Fields(faults.0));
        }
        Ok(Self {
            title: request.title.map(|title| title.into_string()),
            max_concurrency,
            spread: request.spread.unwrap_or(false),
            tasks: request.tasks.into_iter().map(TaskDraft::new).collect(),
            graph,
        })
    }

    /// The machines that tasks are pinned to, each with the first task that is.
    pub(crate) fn machines(&self) -> Vec<(usize, MachineId)> {
        let mut seen = HashSet::new();
        let pinned = self.tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.machine.clone()?)));
        pinned.filter(|(_, machine)| seen.insert(machine.clone())).collect()
    }
}

impl TaskDraft {
    fn new(task: CreateTask) -> Self {
        let prompt = task.prompt.into_string();
        let templated = !Template::parse(&prompt).is_plain(&prompt);
        Self {
            id: TaskId::generate(),
            key: task.task_key.map(|key| key.into_string()),
            title: task.title.map(|title| title.into_string()),
            templated,
            prompt,
            provider: task.provider,
            model: task.model.map(|model| model.into_string()),
            working_directory: task.working_directory.map(|path| path.into_string()),
            machine: task.machine_id,
            timeout: Duration::from_millis(task.timeout_ms.unwrap_or(TIMEOUT_MS)),
            retry: task.retry.map_or_else(Retry::default, retry),
        }
    }
}

fn retry(policy: RetryPolicy) -> Retry {
    Retry {
        max_attempts: i32::try_from(policy.max_attempts).unwrap_or(1),
        backoff: Duration::from_millis(policy.backoff_ms.unwrap_or(1_000)),
        factor: policy.backoff_factor.unwrap_or(2.0),
    }
}

#[derive(Default)]
struct Faults(Vec<(String, String)>);

impl Faults {
    fn unless(&mut self, fine: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !fine && self.0.len() < TOLD {
            self.0.push((pointer.to_owned(), detail()));
        }
    }
}

fn check(task: &CreateTask, at: usize, faults: &mut Faults) {
    let mut unless = |fine: bool, field: &str, detail: &str| {
        faults.unless(fine, &format!("/tasks/{at}/{field}"), || detail.to_owned());
    };
    let of = |text: &Option<_>, fits: fn(&str) -> bool| text.as_deref().is_none_or(fits);
    unless(
        task.task_key.as_deref().is_none_or(is_task_key),
        "taskKey",
        "must be a letter or _ and at most 63 more of A-Z a-z 0-9 _ -",
    );
    unless(task.model.as_deref().is_none_or(is_model), "model", "must look like the name of a model");
    unless(of(&task.working_directory, is_directory), "workingDirectory", "must be an absolute path without `..`");
    unless(task.depends_on.len() <= DEPENDENCIES_OF_ONE, "dependsOn", "must name at most 256 tasks");
    let timeout = task.timeout_ms.unwrap_or(TIMEOUT_MS);
    unless((1_000..=86_400_000).contains(&timeout), "timeoutMs", "must be 1,000 to 86,400,000");
    if let Some(retry) = task.retry {
        unless((1..=10).contains(&retry.max_attempts), "retry/maxAttempts", "must be 1 to 10");
        unless(retry.backoff_ms.is_none_or(|ms| ms <= 3_600_000), "retry/backoffMs", "must be at most 3,600,000");
        let factor = retry.backoff_factor.unwrap_or(1.0);
        unless((1.0..=10.0).contains(&factor), "retry/backoffFactor", "must be 1 to 10");
    }
}

fn check_templates(tasks: &[CreateTask], graph: &TaskGraph, faults: &mut Faults) {
    for (at, task) in tasks.iter().enumerate() {
        for key in Template::parse(&task.prompt).keys() {
            let mut needed = graph.dependencies(at).iter().filter_map(|to| tasks.get(*to)?.task_key.as_deref());
            let known = needed.any(|needed| needed == key);
            faults.unless(known, &format!("/tasks/{at}/prompt"), || {
                format!("wants the output of {key:?}, which is not in dependsOn")
            });
        }
    }
}

/// `[A-Za-z_][A-Za-z0-9_-]{0,63}`
pub(super) fn is_task_key(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    first && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// `[A-Za-z0-9][A-Za-z0-9._:/\[\]-]{0,127}`
fn is_model(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/[]-".contains(&b))
}

fn is_directory(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_directories_keep_to_their_form() {
        for good in ["o3", "claude-opus-4-1[1m]", "a/b:c.d-e_f"] {
            assert!(is_model(good), "{good}");
        }
        for bad in ["", "-x", "a b", "a;b", "ä", "$(x)"] {
            assert!(!is_model(bad), "{bad}");
        }
        assert!(is_directory("/a/..b/c") && is_directory("/"));
        for bad in ["a", "", "/a/../b", "/..", "~/a"] {
            assert!(!is_directory(bad), "{bad}");
        }
    }
}
