//! A submitted run that has passed every check, so that the rest of the service need not check it again.

use std::collections::HashSet;
use std::iter::zip;
use std::time::Duration;

use ensemble_types::ids::{MachineId, TaskId};
use ensemble_types::runs::{
    CreateRun, CreateTask, Isolation, Permission, Provider, RetryPolicy, SealedTask, Signed, TaskSession,
};
use ensemble_types::text::Text;

use super::base::find_bases;
use super::draft_checks::{FieldErrors, check, check_cost, check_permission, check_templates};
use super::sealed_checks::{check_outputs, check_sealed};
use super::{InvalidGraph, Retry, TaskGraph, Template};

const MAX_TASKS: usize = 10_000;
const MAX_DEPENDENCIES: usize = 100_000;
const DEFAULT_CONCURRENCY: u32 = 4;
pub(super) const DEFAULT_TIMEOUT_MS: u64 = 3_600_000;
/// A lease with a longer signed task counts as one of the few large ones of an answer.
const LONG_BODY: usize = 32 << 10;
/// What a task, a dependency and an attempt count for the account's quota beside their texts: about as much as their rows and
/// index entries take. Without it, many small tasks would fill the disk and count almost nothing.
const TASK_BYTES: i64 = 512;
const DEPENDENCY_BYTES: i64 = 128;
pub(crate) const ATTEMPT_BYTES: i64 = 512;

/// A run that can be stored.
#[derive(Clone, Debug)]
pub(crate) struct RunDraft {
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
        Ok(Self {
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
            id: TaskId::generate(),
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
mod tests {
    use super::*;

    /// Fields of a task beside its prompt and provider, such as `,"model":"x"`.
    fn task(fields: &str) -> String {
        format!(r#"{{"prompt":"p","provider":"claude"{fields}}}"#)
    }

    fn run(tasks: &[String], fields: &str) -> Result<RunDraft, InvalidRun> {
        RunDraft::new(serde_json::from_str(&format!(r#"{{"tasks":[{}]{fields}}}"#, tasks.join(","))).unwrap())
    }

    /// The pointers of the errors.
    fn pointers(run: Result<RunDraft, InvalidRun>) -> Vec<String> {
        match run {
            Ok(_) => Vec::new(),
            Err(InvalidRun::Fields(errors)) => errors.into_iter().map(|(pointer, _)| pointer).collect(),
            Err(InvalidRun::Graph(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn what_a_run_leaves_out_has_a_default() {
        let plain = run(&[task("")], "").unwrap();
        assert_eq!((plain.max_concurrency, plain.spread), (4, false));
        let only = plain.tasks.first().unwrap();
        assert_eq!((only.timeout, only.retry), (Duration::from_secs(3_600), Retry::default()));
        assert!(!only.templated);
        let retried = run(&[task(r#","retry":{"maxAttempts":3}"#)], "").unwrap();
        let expected = Retry { max_attempts: 3, backoff: Duration::from_secs(1), factor: 2.0 };
        assert_eq!(retried.tasks.first().unwrap().retry, expected);
    }

    #[test]
    fn a_run_has_bounds() {
        assert!(run(&vec![task(""); 10_000], "").is_ok());
        assert_eq!(pointers(run(&vec![task(""); 10_001], "")), ["/tasks"]);
        assert_eq!(pointers(run(&[], "")), ["/tasks"]);
        for (concurrency, valid) in [(0, false), (1, true), (64, true), (65, false)] {
            let run = run(&[task("")], &format!(r#","maxConcurrency":{concurrency}"#));
            assert_eq!(pointers(run).is_empty(), valid, "{concurrency}");
        }
    }

    #[test]
    fn all_tasks_together_name_at_most_100000_dependencies() {
        let names = |count: usize| {
            let names: Vec<String> = (0..count).map(|at| format!(r#""{at}""#)).collect();
            task(&format!(r#","dependsOn":[{}]"#, names.join(",")))
        };
        // 250 tasks, and 400 that depend on each of them.
        let mut tasks = vec![task(""); 250];
        tasks.extend(vec![names(250); 400]);
        assert!(run(&tasks, "").is_ok());
        tasks.push(names(1));
        assert_eq!(pointers(run(&tasks, "")), ["/tasks"]);
    }

    #[test]
    fn each_field_of_a_task_has_bounds() {
        let key = |length: usize| format!(r#","taskKey":"{}""#, "k".repeat(length));
        let model = |length: usize| format!(r#","model":"{}""#, "m".repeat(length));
        for fields in [
            key(64),
            model(128),
            r#","workingDirectory":"/a""#.to_owned(),
            r#","timeoutMs":1000"#.to_owned(),
            r#","timeoutMs":86400000"#.to_owned(),
            r#","retry":{"maxAttempts":1}"#.to_owned(),
            r#","retry":{"maxAttempts":10,"backoffMs":3600000,"backoffFactor":10}"#.to_owned(),
            r#","retry":{"maxAttempts":2,"backoffMs":0,"backoffFactor":1}"#.to_owned(),
        ] {
            assert_eq!(pointers(run(&[task(&fields)], "")), [""; 0], "{fields}");
        }
        for (fields, pointer) in [
            (r#","taskKey":"1""#, "taskKey"),
            (r#","model":"-""#, "model"),
            (r#","workingDirectory":"a""#, "workingDirectory"),
            (r#","timeoutMs":999"#, "timeoutMs"),
            (r#","timeoutMs":86400001"#, "timeoutMs"),
            (r#","retry":{"maxAttempts":0}"#, "retry/maxAttempts"),
            (r#","retry":{"maxAttempts":11}"#, "retry/maxAttempts"),
            (r#","retry":{"maxAttempts":2,"backoffMs":3600001}"#, "retry/backoffMs"),
            (r#","retry":{"maxAttempts":2,"backoffFactor":0.9}"#, "retry/backoffFactor"),
            (r#","retry":{"maxAttempts":2,"backoffFactor":10.1}"#, "retry/backoffFactor"),
        ] {
            assert_eq!(pointers(run(&[task(""), task(fields)], "")), [format!("/tasks/1/{pointer}")], "{fields}");
        }
    }

    #[test]
    fn a_task_names_at_most_256_others_in_at_most_64_characters() {
        let on = |names: &[String]| task(&format!(r#","dependsOn":["{}"]"#, names.join(r#"",""#)));
        let plan = |count: usize| {
            let mut tasks = vec![task(""); count];
            tasks.push(on(&(0..count).map(|at| at.to_string()).collect::<Vec<_>>()));
            pointers(run(&tasks, ""))
        };
        assert_eq!(plan(256), [""; 0]);
        assert_eq!(plan(257), ["/tasks/257/dependsOn"]);
        let long = "k".repeat(64);
        assert!(run(&[task(&format!(r#","taskKey":"{long}""#)), on(&[long])], "").is_ok());
        assert_eq!(pointers(run(&[task(""), on(&["k".repeat(65)])], "")), ["/tasks/1/dependsOn"]);
    }

    #[test]
    fn at_most_twenty_errors_are_reported() {
        let errors = |count: usize| pointers(run(&vec![task(r#","timeoutMs":1"#); count], "")).len();
        assert_eq!((errors(20), errors(21)), (20, 20));
    }

    #[test]
    fn a_prompt_uses_outputs_of_its_dependencies_only() {
        let asks =
            |on: &str| format!(r#"{{"prompt":"{{{{tasks.a.output}}}}","provider":"claude","dependsOn":[{on}]}}"#);
        let first = task(r#","taskKey":"a""#);
        let draft = run(&[first.clone(), asks(r#""a""#)], "").unwrap();
        assert_eq!(draft.tasks.iter().map(|task| task.templated).collect::<Vec<_>>(), [false, true]);
        assert!(run(&[first.clone(), asks(r#""0""#)], "").is_ok());
        assert_eq!(pointers(run(&[first.clone(), asks("")], "")), ["/tasks/1/prompt"]);
        let misspelt = r#"{"prompt":"{{task.a.output}}","provider":"claude","dependsOn":["a"]}"#.to_owned();
        assert_eq!(pointers(run(&[first, misspelt], "")), ["/tasks/1/prompt"]);
    }

    #[test]
    fn each_pinned_machine_is_listed_once_with_its_first_task() {
        let on = |machine: &str| task(&format!(r#","machineId":"{machine}""#));
        let machines = run(&[task(""), on("a"), on("b"), on("a")], "").unwrap().machines();
        let named: Vec<(usize, String)> = machines.into_iter().map(|(at, machine)| (at, machine.to_string())).collect();
        assert_eq!(named, [(1, "a".to_owned()), (2, "b".to_owned())]);
    }
}
