//! A submitted run that has passed every check, so that the rest of the service need not check it again.

use std::collections::HashSet;
use std::time::Duration;

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::runs::{CreateRun, CreateTask, Provider, RetryPolicy};

use super::task_key::{MAX_TASK_KEY, is_task_key};
use super::{InvalidGraph, Retry, TaskGraph, Template};

const MAX_TASKS: usize = 10_000;
const MAX_DEPENDENCIES_OF_TASK: usize = 256;
const MAX_DEPENDENCIES: usize = 100_000;
const DEFAULT_CONCURRENCY: u32 = 4;
const DEFAULT_TIMEOUT_MS: u64 = 3_600_000;
/// What a task, a dependency and an attempt count for the account's quota beside their texts: about as much as their rows and
/// index entries take. Without it, many small tasks would fill the disk and count almost nothing.
const TASK_BYTES: i64 = 512;
const DEPENDENCY_BYTES: i64 = 128;
pub(crate) const ATTEMPT_BYTES: i64 = 512;
/// At most this many field errors are reported at once.
const MAX_ERRORS: usize = 20;

/// A run that can be stored.
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
    /// The prompt contains placeholders for the outputs of other tasks.
    pub(crate) templated: bool,
    pub(crate) provider: Provider,
    pub(crate) model: Option<String>,
    pub(crate) working_directory: Option<String>,
    pub(crate) machine: Option<MachineId>,
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
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
        let edges: usize = request.tasks.iter().map(|task| task.depends_on.len()).sum();
        errors.require(edges <= MAX_DEPENDENCIES, "/tasks", || {
            format!("must name at most {MAX_DEPENDENCIES} dependencies in all")
        });
        if !errors.0.is_empty() {
            return Err(InvalidRun::Fields(errors.0));
        }
        for (at, task) in request.tasks.iter().enumerate() {
            check(task, at, &mut errors);
        }
        if !errors.0.is_empty() {
            return Err(InvalidRun::Fields(errors.0));
        }
        let named: Vec<(Option<&str>, &[String])> =
            request.tasks.iter().map(|task| (task.task_key.as_deref(), task.depends_on.as_slice())).collect();
        let graph = TaskGraph::new(&named)?;
        check_templates(&request.tasks, &graph, &mut errors);
        if !errors.0.is_empty() {
            return Err(InvalidRun::Fields(errors.0));
        }
        Ok(Self {
            title: request.title.map(|title| title.into_string()),
            max_concurrency,
            spread: request.spread.unwrap_or(false),
            tasks: request.tasks.into_iter().map(TaskDraft::new).collect(),
            graph,
        })
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
            timeout: Duration::from_millis(task.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            retry: task.retry.map_or_else(Retry::default, retry),
        }
    }

    fn text_bytes(&self) -> usize {
        let Self { key, title, model, working_directory, .. } = self;
        let optional: usize =
            [key, title, model, working_directory].into_iter().map(|text| length(text.as_ref())).sum();
        self.prompt.len() + optional
    }
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

#[derive(Default)]
struct FieldErrors(Vec<(String, String)>);

impl FieldErrors {
    fn require(&mut self, valid: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !valid && self.0.len() < MAX_ERRORS {
            self.0.push((pointer.to_owned(), detail()));
        }
    }
}

fn check(task: &CreateTask, at: usize, errors: &mut FieldErrors) {
    let mut require = |valid: bool, field: &str, detail: &str| {
        errors.require(valid, &format!("/tasks/{at}/{field}"), || detail.to_owned());
    };
    require(
        task.task_key.as_deref().is_none_or(is_task_key),
        "taskKey",
        "must be a letter or _ and at most 63 more of A-Z a-z 0-9 _ -",
    );
    require(
        task.model.as_deref().is_none_or(is_model),
        "model",
        "must be a letter or digit and at most 127 more of A-Z a-z 0-9 . _ : / [ ] -",
    );
    require(
        task.working_directory.as_deref().is_none_or(is_directory),
        "workingDirectory",
        "must be an absolute path without `..`",
    );
    require(task.depends_on.len() <= MAX_DEPENDENCIES_OF_TASK, "dependsOn", "must name at most 256 tasks");
    // Names go into errors, which must stay short.
    let is_short = task.depends_on.iter().all(|name| name.len() <= MAX_TASK_KEY);
    require(is_short, "dependsOn", "must hold keys or positions of tasks, which have at most 64 characters");
    let timeout = task.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
    require((1_000..=86_400_000).contains(&timeout), "timeoutMs", "must be 1,000 to 86,400,000");
    if let Some(retry) = task.retry {
        require((1..=10).contains(&retry.max_attempts), "retry/maxAttempts", "must be 1 to 10");
        require(retry.backoff_ms.is_none_or(|ms| ms <= 3_600_000), "retry/backoffMs", "must be at most 3,600,000");
        let factor = retry.backoff_factor.unwrap_or(1.0);
        require((1.0..=10.0).contains(&factor), "retry/backoffFactor", "must be 1 to 10");
    }
}

fn check_templates(tasks: &[CreateTask], graph: &TaskGraph, errors: &mut FieldErrors) {
    for (at, task) in tasks.iter().enumerate() {
        let template = Template::parse(&task.prompt);
        let needed: HashSet<&str> =
            graph.dependencies(at).iter().filter_map(|to| tasks.get(*to)?.task_key.as_deref()).collect();
        for key in template.keys() {
            errors.require(needed.contains(key), &format!("/tasks/{at}/prompt"), || {
                format!("uses the output of {key:?}: name that task in dependsOn")
            });
        }
    }
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
    fn malformed_models_and_directories_are_refused() {
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
