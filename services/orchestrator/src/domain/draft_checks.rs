//! The checks of a submitted run's fields. The errors of all fields are collected.

use std::collections::HashSet;

use ensemble_types::ids::RunId;
use ensemble_types::placeholders::misspelt;
use ensemble_types::runs::{CreateRun, CreateTask, Permission};
use ensemble_types::task_key::{MAX_TASK_KEY, is_task_key};
use ensemble_types::text::Text;

use super::draft::DEFAULT_TIMEOUT_MS;
use super::{TaskGraph, Template};

const MAX_DEPENDENCIES_OF_TASK: usize = 256;
const MAX_ALLOWED_TOOLS: usize = 64;
/// At most this many field errors are reported at once.
const MAX_ERRORS: usize = 20;

#[derive(Default)]
pub(super) struct FieldErrors(Vec<(String, String)>);

impl FieldErrors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// JSON Pointers, each with what is wrong there.
    pub(super) fn into_fields(self) -> Vec<(String, String)> {
        self.0
    }

    pub(super) fn require(&mut self, valid: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !valid && self.0.len() < MAX_ERRORS {
            self.0.push((pointer.to_owned(), detail()));
        }
    }
}

pub(super) fn check(task: &CreateTask, at: usize, errors: &mut FieldErrors) {
    check_permission(&format!("/tasks/{at}"), task.permission, task.allowed_tools.as_deref(), errors);
    check_cost(&format!("/tasks/{at}"), task.max_cost_usd, errors);
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

/// The ids that a client has chosen sort by their time, as those of this service do, and each names one thing.
pub(super) fn check_ids(request: &CreateRun, errors: &mut FieldErrors) {
    const NOT_V7: &str = "must be a UUID of version 7";
    errors.require(request.id.is_none_or(RunId::is_version_7), "/id", || NOT_V7.to_owned());
    let mut seen = HashSet::new();
    for (at, task) in request.tasks.iter().enumerate() {
        let Some(id) = task.id else { continue };
        let pointer = format!("/tasks/{at}/id");
        errors.require(id.is_version_7(), &pointer, || NOT_V7.to_owned());
        errors.require(seen.insert(id), &pointer, || "is the id of another task of the run".to_owned());
    }
}

pub(super) fn check_cost(of: &str, max: Option<f64>, errors: &mut FieldErrors) {
    let is_valid = max.is_none_or(|max| max > 0.0 && max <= 1_000_000.0);
    errors.require(is_valid, &format!("{of}/maxCostUsd"), || "must be more than 0, and at most 1,000,000".to_owned());
}

pub(super) fn check_permission(
    of: &str,
    permission: Option<Permission>,
    tools: Option<&[Text<1, 256>]>,
    errors: &mut FieldErrors,
) {
    errors.require(permission != Some(Permission::Ask), &format!("{of}/permission"), || {
        "must be plan, edit or bypass: no person could answer what the agent asks".to_owned()
    });
    let is_valid = |tools: &[Text<1, 256>]| {
        tools.len() <= MAX_ALLOWED_TOOLS && tools.iter().all(|tool| !tool.chars().any(char::is_control))
    };
    errors.require(tools.is_none_or(is_valid), &format!("{of}/allowedTools"), || {
        format!("must be at most {MAX_ALLOWED_TOOLS} patterns of printable characters")
    });
}

pub(super) fn check_templates(tasks: &[CreateTask], graph: &TaskGraph, errors: &mut FieldErrors) {
    let keys: HashSet<&str> = tasks.iter().filter_map(|task| task.task_key.as_deref()).collect();
    for (at, task) in tasks.iter().enumerate() {
        let prompt = task.prompt.as_deref().unwrap_or_default();
        if let Some((wrong, meant)) = misspelt(prompt, |key| keys.contains(key)) {
            errors.require(false, &format!("/tasks/{at}/prompt"), || {
                format!(
                    "has {wrong}, which is no placeholder: write {meant}, or \\{{{{ for braces that stay as they are"
                )
            });
        }
        let template = Template::parse(prompt);
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
        assert!(!is_model(&"m".repeat(129)));
        for bad in ["a", "", "/a/../b", "/..", "~/a", "/a\0b"] {
            assert!(!is_directory(bad), "{bad}");
        }
    }
}
