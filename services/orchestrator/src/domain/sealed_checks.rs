//! The checks of sealed tasks, of which the service knows only the machine, the provider and what becomes of them.

use ensemble_types::runs::{CreateTask, Provider, Signed, TaskSession};

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
    let is_demo = task.provider.as_str() == Provider::DEMO;
    require(
        !is_demo || task.session == Some(TaskSession::Start),
        "provider",
        "demo is a script that begins a session: it needs `sealed`, `session` start and `machineId`",
    );
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
        require(!is_given, field, "must not be given with `sealed`, which has it");
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::{InvalidRun, RunDraft};

    fn sealed() -> Value {
        json!({ "sealed": "s", "session": "start", "provider": "claude", "machineId": "m" })
    }

    fn clear() -> Value {
        json!({ "prompt": "p", "provider": "claude" })
    }

    /// The fields of the only task that are wrong, with these fields changed. What is null is left out.
    fn wrong(mut task: Value, changed: Value) -> Vec<String> {
        let fields = task.as_object_mut().unwrap();
        fields.extend(changed.as_object().unwrap().clone());
        fields.retain(|_, value| !value.is_null());
        pointers(&json!({ "tasks": [task] }))
    }

    fn pointers(run: &Value) -> Vec<String> {
        match RunDraft::new(serde_json::from_value(run.clone()).unwrap()) {
            Ok(_) => Vec::new(),
            Err(InvalidRun::Fields(errors)) => {
                errors.into_iter().map(|(pointer, _)| pointer.replace("/tasks/0/", "")).collect()
            }
            Err(InvalidRun::Graph(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn what_is_sealed_is_not_said_in_the_clear() {
        assert_eq!(wrong(sealed(), json!({})), [""; 0]);
        for (field, value) in [
            ("prompt", json!("p")),
            ("model", json!("m")),
            ("workingDirectory", json!("/a")),
            ("permission", json!("plan")),
            ("allowedTools", json!([])),
            ("isolation", json!("worktree")),
            ("maxCostUsd", json!(1)),
            // What is null has to be given.
            ("session", Value::Null),
            ("machineId", Value::Null),
        ] {
            assert_eq!(wrong(sealed(), json!({ field: value })), [field], "{value}");
        }
        let signed = json!({ "signature": { "key": "k", "sig": "s" }, "signedBody": "{}" });
        assert_eq!(wrong(sealed(), signed), ["signature"], "what is sealed has its signature inside");
    }

    #[test]
    fn a_task_in_the_clear_has_a_prompt_and_no_session() {
        assert_eq!(wrong(clear(), json!({})), [""; 0]);
        assert_eq!(wrong(clear(), json!({ "prompt": null })), ["prompt"]);
        assert_eq!(wrong(clear(), json!({ "session": true })), ["session"]);
        assert_eq!(wrong(clear(), json!({ "signedBody": "{}" })), ["signature"]);
        assert_eq!(wrong(clear(), json!({ "signature": { "key": "k", "sig": "s" } })), ["signedBody"]);
    }

    #[test]
    fn only_a_task_that_is_a_turn_can_fail_on_a_denial() {
        for is_given in [true, false] {
            assert_eq!(wrong(sealed(), json!({ "failOnDenial": is_given })), ["failOnDenial"]);
            assert_eq!(wrong(sealed(), json!({ "failOnDenial": is_given, "session": true })), [""; 0]);
        }
    }

    #[test]
    fn the_machine_of_the_run_is_that_of_its_sealed_tasks() {
        let task = json!({ "sealed": "s", "session": "start", "provider": "claude" });
        assert_eq!(pointers(&json!({ "tasks": [task], "machineId": "m" })), [""; 0]);
        assert_eq!(pointers(&json!({ "tasks": [task] })), ["machineId"]);
    }

    #[test]
    fn no_prompt_uses_the_output_of_a_session() {
        let named = |key: &str, mut task: Value| {
            task["taskKey"] = json!(key);
            task
        };
        let uses = |key: &str| {
            let asks = json!({ "prompt": format!("{{{{tasks.{key}.output}}}}"), "provider": "claude", "dependsOn": ["live", "plain"] });
            let tasks = json!([named("live", sealed()), named("plain", clear()), asks]);
            RunDraft::new(serde_json::from_value(json!({ "tasks": tasks })).unwrap()).map(drop)
        };
        assert_eq!(uses("plain"), Ok(()));
        let no_output = InvalidGraph::NoOutput { task: 2, key: "live".to_owned() };
        assert_eq!(uses("live"), Err(InvalidRun::Graph(no_output)));
    }
}
