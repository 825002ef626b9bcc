//! Plan files: a run as people write it (YAML or JSON), converted to the request of the interface.
//!
//! Beyond the interface a plan has `defaults` for its tasks, prompts in files, relative directories, and durations such
//! as `10m`. An unknown field is an error, because it is nearly always a typing mistake.

mod files;

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use ensemble_types::ids::MachineId;
use ensemble_types::runs::{CreateRun, CreateTask, Permission, Provider, RetryPolicy};
use ensemble_types::text::Text;
use serde::Deserialize;

pub(crate) use self::files::{LONGEST_PLAN, PromptFiles, read_file, read_text};
use crate::failure::{Failure, Result};

/// libyaml compares each token between brackets with every bracket that is open, so it works for minutes on deep nesting.
/// This sum of the depths at all tokens takes it a fraction of a second. Brackets in prompts count too, so the bound is far
/// above what plans reach.
const MOST_BRACKET_WORK: usize = 20_000_000;
/// libyaml compares each directive with all before it.
const MOST_DIRECTIVES: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Plan {
    title: Option<String>,
    max_concurrency: Option<u32>,
    spread: Option<bool>,
    #[serde(default)]
    defaults: Defaults,
    tasks: Vec<Task>,
}

/// Values for tasks that do not set their own.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Defaults {
    provider: Option<Provider>,
    model: Option<String>,
    working_directory: Option<PathBuf>,
    machine_id: Option<MachineId>,
    timeout: Option<String>,
    timeout_ms: Option<u64>,
    retry: Option<RetryPolicy>,
    permission: Option<Permission>,
    allowed_tools: Option<Vec<String>>,
    fail_on_denial: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Task {
    #[serde(alias = "taskKey")]
    key: Option<String>,
    title: Option<String>,
    prompt: Option<String>,
    prompt_file: Option<PathBuf>,
    provider: Option<Provider>,
    model: Option<String>,
    working_directory: Option<PathBuf>,
    #[serde(default)]
    depends_on: Vec<String>,
    machine_id: Option<MachineId>,
    timeout: Option<String>,
    timeout_ms: Option<u64>,
    retry: Option<RetryPolicy>,
    permission: Option<Permission>,
    allowed_tools: Option<Vec<String>>,
    fail_on_denial: Option<bool>,
}

/// Values from the command line that replace the plan's defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) provider: Option<Provider>,
    pub(crate) model: Option<String>,
}

/// Reads a plan. `name` is used in messages. Working directories are relative to `here`.
pub(crate) fn read(
    text: &str,
    name: &str,
    files: &PromptFiles<'_>,
    here: &Path,
    overrides: Overrides,
) -> Result<CreateRun> {
    if takes_too_long(text) {
        return Err(Failure::message(format!(
            "{name} is not a plan: its brackets are nested too deep. Check that each [ and {{ is closed."
        )));
    }
    let mut plan: Plan = serde_yaml_ng::from_str(text).map_err(|error| {
        Failure::message(format!("{name} is not a plan: {error}. See examples/review.yaml for an example."))
    })?;
    plan.defaults.provider = overrides.provider.or(plan.defaults.provider);
    plan.defaults.model = overrides.model.or(plan.defaults.model);
    let tasks = plan.tasks.into_iter().enumerate().map(|(at, task)| {
        let called = task.key.clone().unwrap_or_else(|| format!("number {}", at + 1));
        task.complete(&plan.defaults, files, here)
            .map_err(|what| Failure::message(format!("{name}: task {called}: {what}.")))
    });
    Ok(CreateRun {
        tasks: tasks.collect::<Result<_>>()?,
        title: optional(plan.title).map_err(|what| Failure::message(format!("{name}: the title {what}.")))?,
        max_concurrency: plan.max_concurrency,
        spread: plan.spread,
        machine_id: None,
        permission: None,
        allowed_tools: None,
    })
}

/// Whether libyaml would need more than a fraction of a second.
fn takes_too_long(text: &str) -> bool {
    let (mut depth, mut work) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' | b':' | b'?' => {}
            _ => continue,
        }
        work = work.saturating_add(depth);
    }
    let directives = text.lines().filter(|line| line.starts_with('%')).count();
    work > MOST_BRACKET_WORK || directives > MOST_DIRECTIVES
}

impl Task {
    fn complete(self, defaults: &Defaults, files: &PromptFiles<'_>, here: &Path) -> Result<CreateTask, String> {
        let prompt = match (self.prompt, self.prompt_file) {
            (Some(prompt), None) => prompt,
            (None, Some(file)) => files.read(&file)?,
            (None, None) => return Err("it has no prompt and no promptFile".to_owned()),
            (Some(_), Some(_)) => return Err("it has both a prompt and a promptFile".to_owned()),
        };
        let provider = self.provider.or(defaults.provider);
        let directory = self.working_directory.as_ref().or(defaults.working_directory.as_ref());
        let timeout = match (self.timeout, self.timeout_ms) {
            (None, None) => milliseconds(defaults.timeout.as_deref(), defaults.timeout_ms)?,
            (text, number) => milliseconds(text.as_deref(), number)?,
        };
        Ok(CreateTask {
            prompt: Text::new(prompt).map_err(|error| format!("the prompt {error}"))?,
            provider: provider.ok_or("it has no provider: claude, codex or gemini")?,
            model: optional(self.model.or_else(|| defaults.model.clone()))
                .map_err(|what| format!("the model {what}"))?,
            working_directory: Some(absolute(here, directory)?),
            depends_on: self.depends_on,
            task_key: optional(self.key).map_err(|what| format!("the key {what}"))?,
            title: optional(self.title).map_err(|what| format!("the title {what}"))?,
            machine_id: self.machine_id.or_else(|| defaults.machine_id.clone()),
            timeout_ms: timeout,
            retry: self.retry.or(defaults.retry),
            permission: self.permission.or(defaults.permission),
            allowed_tools: tools(self.allowed_tools.or_else(|| defaults.allowed_tools.clone()))?,
            fail_on_denial: self.fail_on_denial.or(defaults.fail_on_denial),
        })
    }
}

fn optional<const MIN: usize, const MAX: usize>(text: Option<String>) -> Result<Option<Text<MIN, MAX>>, String> {
    text.map(Text::new).transpose().map_err(|error| error.to_string())
}

fn tools(names: Option<Vec<String>>) -> Result<Option<Vec<Text<1, 256>>>, String> {
    let texts = names.map(|names| names.into_iter().map(Text::new).collect::<Result<Vec<_>, _>>()).transpose();
    texts.map_err(|error| format!("a pattern in allowedTools {error}"))
}

fn milliseconds(text: Option<&str>, number: Option<u64>) -> Result<Option<u64>, String> {
    match (text, number) {
        (Some(_), Some(_)) => Err("it has both a timeout and a timeoutMs".to_owned()),
        (Some(text), None) => duration(text)
            .map(|duration| u64::try_from(duration.as_millis()).ok())
            .ok_or_else(|| format!("the timeout {text:?} must be like 90s, 10m or 2h")),
        (None, number) => Ok(number),
    }
}

/// `90s`, `10m`, `12h`, `7d`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

/// `directory` relative to `here`, without `.` and `..`, because the service only accepts absolute paths.
fn absolute(here: &Path, directory: Option<&PathBuf>) -> Result<Text<1, 4_096>, String> {
    let mut path = PathBuf::new();
    for part in here.join(directory.map_or(Path::new("."), PathBuf::as_path)).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    let text = path.to_str().ok_or("the working directory is not UTF-8")?;
    Text::new(text).map_err(|error| format!("the working directory {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<CreateRun> {
        read(
            text,
            "plan.yaml",
            &PromptFiles::new(Path::new("/plans"), false),
            Path::new("/home/me/project"),
            Overrides::default(),
        )
    }

    #[test]
    fn tasks_take_what_they_do_not_say_from_the_defaults() {
        let run = plan(
            "title: t\ndefaults: {provider: claude, timeout: 10m, workingDirectory: ../other}\n\
             tasks:\n  - {key: a, prompt: x}\n  - {key: b, prompt: y, provider: codex, timeout: 90s, workingDirectory: /tmp, dependsOn: [a]}",
        )
        .unwrap();
        let [a, b] = run.tasks.as_slice() else { panic!("two tasks") };
        assert_eq!((a.provider, a.timeout_ms), (Provider::Claude, Some(600_000)));
        assert_eq!(a.working_directory.as_deref(), Some("/home/me/other"));
        assert_eq!((b.provider, b.timeout_ms), (Provider::Codex, Some(90_000)));
        assert_eq!(b.working_directory.as_deref(), Some("/tmp"));
        assert_eq!(b.depends_on, ["a"]);
    }

    #[test]
    fn without_a_directory_tasks_work_where_the_command_was_typed() {
        let run = plan("tasks: [{prompt: x, provider: gemini}]").unwrap();
        assert_eq!(run.tasks[0].working_directory.as_deref(), Some("/home/me/project"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("tasks: [{promt: x, provider: codex}]", "promt"),
            ("tasks: [{prompt: x}]", "provider"),
            ("tasks: [{provider: codex, key: a}]", "task a: it has no prompt"),
            ("tasks: [{prompt: x, provider: gpt}]", "claude"),
            ("tasks: [{prompt: x, provider: codex, timeout: soon}]", "soon"),
            ("hello", "not a plan"),
        ] {
            let failure = plan(text).unwrap_err().to_string();
            assert!(failure.contains(said), "{failure}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_at_once() {
        let n = 100_000;
        let directives = (0..n).map(|at| format!("%TAG !a{at}! b\n")).collect();
        for text in ["[".repeat(n), "{a: ".repeat(n), "[a,".repeat(n), "- ".repeat(n), "? ".repeat(n), directives] {
            let begun = std::time::Instant::now();
            let failure = plan(&text).unwrap_err().to_string();
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?} {:?}", &text[..8], begun.elapsed());
            assert!(failure.contains("not a plan"), "{failure}");
        }
    }

    #[test]
    fn brackets_in_prompts_are_no_nesting() {
        let tasks = "- {provider: claude, prompt: \"from 0 to [1, 2, 3) { : ? \"}\n".repeat(1_000);
        assert_eq!(plan(&format!("tasks:\n{tasks}")).unwrap().tasks.len(), 1_000);
    }
}
