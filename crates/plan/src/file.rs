//! The fields of a plan file, and whether a text can be one.

use std::path::PathBuf;

use ensemble_types::ids::MachineId;
use ensemble_types::runs::{Isolation, Permission, Provider, RetryPolicy};
use serde::Deserialize;

use super::Error;

/// libyaml compares each token between brackets with every bracket that is open, so it works for minutes on deep nesting.
/// This sum of the depths at all tokens takes it a fraction of a second. Brackets in prompts count too, so the bound is far
/// above what plans reach.
const MOST_BRACKET_WORK: usize = 20_000_000;
/// libyaml compares each directive with all before it.
const MOST_DIRECTIVES: usize = 1_000;

/// Values for tasks that do not set their own.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Defaults {
    pub(super) provider: Option<Provider>,
    pub(super) model: Option<String>,
    pub(super) working_directory: Option<PathBuf>,
    pub(super) machine_id: Option<MachineId>,
    pub(super) timeout: Option<String>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) permission: Option<Permission>,
    pub(super) allowed_tools: Option<Vec<String>>,
    pub(super) fail_on_denial: Option<bool>,
    pub(super) isolation: Option<Isolation>,
    pub(super) max_cost_usd: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plan {
    /// Names the schema for editors.
    #[serde(rename = "$schema", default)]
    _schema: serde::de::IgnoredAny,
    pub(super) title: Option<String>,
    pub(super) max_concurrency: Option<u32>,
    pub(super) spread: Option<bool>,
    pub(super) machine_id: Option<MachineId>,
    pub(super) permission: Option<Permission>,
    pub(super) allowed_tools: Option<Vec<String>>,
    pub(super) fail_on_denial: Option<bool>,
    pub(super) max_cost_usd: Option<f64>,
    #[serde(default)]
    pub(super) defaults: Defaults,
    pub(super) tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Task {
    #[serde(alias = "taskKey")]
    pub(super) key: Option<String>,
    pub(super) title: Option<String>,
    pub(super) prompt: Option<String>,
    pub(super) prompt_file: Option<PathBuf>,
    pub(super) provider: Option<Provider>,
    pub(super) model: Option<String>,
    pub(super) working_directory: Option<PathBuf>,
    #[serde(default)]
    pub(super) depends_on: Vec<String>,
    pub(super) machine_id: Option<MachineId>,
    pub(super) timeout: Option<String>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) permission: Option<Permission>,
    pub(super) allowed_tools: Option<Vec<String>>,
    pub(super) fail_on_denial: Option<bool>,
    pub(super) isolation: Option<Isolation>,
    pub(super) base: Option<String>,
    pub(super) max_cost_usd: Option<f64>,
    /// The task is the first turn of a live session.
    pub(super) session: Option<bool>,
}

/// Parses a plan, which has this name in what is said of it.
pub(super) fn parse(text: &str, name: &str) -> Result<Plan, Error> {
    if takes_too_long(text) {
        return Err(Error::Wrong(format!(
            "{name} is not a plan: its brackets are nested too deep. Check that each [ and {{ is closed."
        )));
    }
    merged(text).map_err(|error| {
        if is_prose(text) {
            return Error::Prose { name: name.to_owned() };
        }
        let why = field_of_tasks(text).unwrap_or_else(|| error.to_string());
        Error::NoPlan { name: name.to_owned(), why }
    })
}

/// A plan with merge keys (`<<: *base`). Without them errors have lines and columns, which a value does not know.
fn merged(text: &str) -> Result<Plan, serde_yaml_ng::Error> {
    if !text.contains("<<:") {
        return serde_yaml_ng::from_str(text);
    }
    let mut value: serde_yaml_ng::Value = serde_yaml_ng::from_str(text)?;
    value.apply_merge()?;
    serde_yaml_ng::from_value(value)
}

/// What is said when a field of tasks is at the top of a plan.
fn field_of_tasks(text: &str) -> Option<String> {
    const OF_DEFAULTS: [&str; 7] =
        ["provider", "model", "workingDirectory", "timeout", "timeoutMs", "retry", "isolation"];
    const OF_TASKS: [&str; 6] = ["key", "taskKey", "prompt", "promptFile", "dependsOn", "base"];
    let serde_yaml_ng::Value::Mapping(members) = serde_yaml_ng::from_str(text).ok()? else { return None };
    let at_the_top = |names: &[&'static str]| names.iter().copied().find(|name| members.contains_key(*name));
    let place = at_the_top(&OF_DEFAULTS).map(|name| (name, "a task, or into `defaults` for all tasks"));
    let (name, place) = place.or_else(|| at_the_top(&OF_TASKS).map(|name| (name, "a task, below `tasks`")))?;
    Some(format!("`{name}` belongs into {place}"))
}

/// Whether the text is a sentence. One with a colon in it is a YAML mapping.
fn is_prose(text: &str) -> bool {
    use serde_yaml_ng::Value;
    match serde_yaml_ng::from_str::<Value>(text) {
        Ok(Value::Mapping(members)) => members.keys().any(|key| key.as_str().is_some_and(|key| key.contains(' '))),
        Ok(value) => value.is_string(),
        // Prose with a colon or a quote in it.
        Err(_) => !text.contains("tasks"),
    }
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
