//! Plans without a server: what is checked before anything is sent.

use std::fs;

use crate::ensemble::User;

#[test]
fn a_plan_is_checked_without_a_server() {
    let user = User::new(None);
    let plan = user.home().join("plan.yaml");
    fs::write(
        &plan,
        "$schema: plan.schema.json\ntasks:\n- {key: last, dependsOn: [first], prompt: 'fix {{vars.what}}', workingDirectory: sub}\n\
         - {key: first, prompt: x, provider: codex, machineId: m-1}\n",
    )
    .unwrap();
    let printed = user.succeed(&["plan", "check", "plan.yaml", "--var", "what=it"]);
    let (first, last) = (printed.find("first").unwrap(), printed.find("last").unwrap());
    assert!(first < last && printed.contains("m-1") && printed.contains("/sub"), "{printed}");
    assert!(user.fail(&["plan", "check", "plan.yaml"]).contains("--var what="));
    assert!(user.fail(&["plan", "check", "plan.yaml", "--var", "what=it", "--var", "who=me"]).contains("who"));
    assert_eq!(user.run(&["run", "plan.yaml", "--var", "what"]).code, 2);
    fs::write(&plan, "tasks: [{key: a, prompt: x, dependsOn: [b]}, {key: b, prompt: x, dependsOn: [a]}]").unwrap();
    assert!(user.fail(&["plan", "check", "plan.yaml"]).contains("depend on each other"));
    fs::write(&plan, "tasks: []").unwrap();
    assert!(user.fail(&["plan", "check", "plan.yaml"]).contains("has no tasks"));
    fs::write(&plan, "tasks: [{prompt: x}, {prompt: y, provider: codex, maxCostUsd: 1}]").unwrap();
    let printed = user.succeed(&["plan", "check", "plan.yaml"]);
    assert!(printed.contains("task number 1 has no provider"), "{printed}");
    assert!(printed.contains("maxCostUsd is not kept with codex"), "{printed}");
}

#[test]
fn braces_that_may_have_been_meant_otherwise_are_named() {
    let user = User::new(None);
    fs::write(user.home().join("plan.yaml"), "tasks: [{prompt: 'x {{foo}} y {{ user.name }}', provider: codex}]")
        .unwrap();
    let printed = user.succeed(&["plan", "check", "plan.yaml"]);
    assert!(printed.contains("⚠ task number 1: {{foo}} stays as it is") && !printed.contains("user.name"), "{printed}");
}

#[test]
fn the_schema_is_json() {
    let schema: serde_json::Value = serde_json::from_str(&User::new(None).succeed(&["plan", "schema"])).unwrap();
    assert_eq!(schema["type"], "object");
}

#[test]
fn every_example_is_a_plan() {
    let user = User::new(None);
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for example in fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path()) {
        if example.extension().is_some_and(|extension| extension == "yaml") {
            let mut arguments = vec!["plan", "check", example.to_str().unwrap()];
            if fs::read_to_string(&example).unwrap().contains("{{vars.focus}}") {
                arguments.extend(["--var", "focus=errors"]);
            }
            user.succeed(&arguments);
        }
    }
}
