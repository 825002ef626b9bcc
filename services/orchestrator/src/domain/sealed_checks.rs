//! The checks of sealed tasks, of which the service knows only the machine, the provider and what becomes of them.

use ensemble_types::runs::{CreateTask, Signed, TaskSession};

use super::draft_checks::FieldErrors;
use super::{InvalidGraph, TaskGraph, Template};

/// `is_pinned`: the run names a machine for tasks that name none.
pub(super) fn check_sealed(task: &CreateTask, at: usize, is_pinned: bool, errors: &mut FieldErrors) {
    let mut require = |valid: bool, field: &str, detail: &str| {
        errors.require(valid, &format!("/tasks/{at}/{field}"), || detail.to_owned());
    };
    if let Err(only) = Signed::of(task.signature.clone(), task.signed_body.clone()) {
        require(false, only.lacks, &only.to_string());
    }
    if task.sealed.is_none() {
        require(task.prompt.is_some(), "prompt", "must be given, or `sealed`");
        require(task.session.is_none(), "session", "needs `sealed`: what a session does is for its machine only");
        return;
    }
    for (field, is_given) in [
        ("prompt", task.prompt.is_some()),
        ("model", task.model.is_some()),
        ("workingDirectory", task.working_directory.is_some()),
        ("permission", task.permission.is_some()),
        ("allowedTools", task.allowed_tools.is_some()),
        ("isolation", task.isolation.is_some()),
        ("base", task.base.is_some()),
        ("signature", task.signature.is_some()),
    ] {
        require(!is_given, field, "must not be given beside `sealed`, which has it");
    }
    require(task.session.is_some(), "session", "must be given with `sealed`");
    require(
        task.max_cost_usd.is_none(),
        "maxCostUsd",
        "must not be given with a session, which has no limit of its cost",
    );
    if task.session == Some(TaskSession::Start) {
        // It would have no effect on a session that lives by itself.
        require(task.fail_on_denial.is_none(), "failOnDenial", "must not be given with the session start");
    }
    require(task.machine_id.is_some() || is_pinned, "machineId", "must name the machine that the task is sealed for");
}

/// A session keeps what was said to itself, so no prompt can use the output of its task.
pub(super) fn check_outputs(tasks: &[CreateTask], graph: &TaskGraph) -> Result<(), InvalidGraph> {
    for (at, task) in tasks.iter().enumerate() {
        let template = Template::parse(task.prompt.as_deref().unwrap_or_default());
        let used: Vec<&str> = template.keys().collect();
        let silent =
            graph.dependencies(at).iter().filter_map(|to| tasks.get(*to)).find(|other| {
                other.session.is_some() && other.task_key.as_deref().is_some_and(|key| used.contains(&key))
            });
        if let Some(key) = silent.and_then(|other| other.task_key.as_deref()) {
            return Err(InvalidGraph::NoOutput { task: at, key: key.to_owned() });
        }
    }
    Ok(())
}
