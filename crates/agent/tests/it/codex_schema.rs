//! What the driver for codex writes and reads is what the program's own schema says.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use boon::{Compiler, Draft, Schemas as Compiled};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::live::program;
use crate::replay::wires;
use crate::wire::{self, Entry};

/// The notifications and requests that the driver reads.
const READ: &[&str] = &[
    "account/rateLimits/updated",
    "error",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/completed",
    "item/fileChange/patchUpdated",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/started",
    "serverRequest/resolved",
    "thread/tokenUsage/updated",
    "turn/completed",
    "turn/plan/updated",
    "turn/started",
];
const ASKED: &[&str] =
    &["item/commandExecution/requestApproval", "item/fileChange/requestApproval", "item/tool/requestUserInput"];
/// The words of `codexErrorInfo` that mean something to the driver.
const ERRORS: &[&str] = &[
    "contextWindowExceeded",
    "cyberPolicy",
    "flexUnavailable",
    "misalignmentPolicyViolation",
    "policyCapacityUnavailable",
    "rateLimitExceeded",
    "serverOverloaded",
    "sessionBudgetExceeded",
    "unauthorized",
    "usageLimitExceeded",
];

struct Schemas(TempDir);

impl Schemas {
    fn print() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let search_path = std::env::vars().find(|(name, _)| name == "PATH").unwrap().1;
        let status = Command::new(program("codex"))
            .args(["app-server", "generate-json-schema", "--experimental", "--out"])
            .arg(folder.path())
            .env_clear()
            .envs([("HOME", folder.path().to_str().unwrap()), ("PATH", &search_path)])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        Self(folder)
    }

    fn schema(&self, name: &str) -> Value {
        let path: &Path = self.0.path();
        serde_json::from_str(&std::fs::read_to_string(path.join(format!("{name}.json"))).unwrap()).unwrap()
    }

    /// Whether a value is as a schema says.
    fn validator(&self, name: &str) -> impl Fn(&Value) -> bool {
        let (mut compiler, mut compiled) = (Compiler::new(), Compiled::new());
        compiler.set_default_draft(Draft::V7);
        compiler.add_resource(name, self.schema(name)).unwrap();
        let index = compiler.compile(name, &mut compiled).unwrap();
        move |value| compiled.validate(value, index).is_ok()
    }

    fn methods(&self, name: &str) -> BTreeSet<String> {
        let schema = self.schema(name);
        let kinds = schema["oneOf"].as_array().unwrap().iter();
        kinds.filter_map(|kind| kind["properties"]["method"]["enum"][0].as_str().map(str::to_owned)).collect()
    }
}

#[test]
fn what_is_written_and_read_is_in_the_schema_of_the_program() {
    let schemas = Schemas::print();
    for (name, methods) in [("ServerNotification", READ), ("ServerRequest", ASKED)] {
        let known = schemas.methods(name);
        let unknown: Vec<_> = methods.iter().filter(|method| !known.contains(**method)).collect();
        assert!(unknown.is_empty(), "{name} no longer has {unknown:?}");
    }
    let notification = schemas.schema("ServerNotification").to_string();
    let missing: Vec<_> = ERRORS.iter().filter(|word| !notification.contains(&format!("\"{word}\""))).collect();
    assert!(missing.is_empty(), "codexErrorInfo no longer has {missing:?}");

    let (request, notice) = (schemas.validator("ClientRequest"), schemas.validator("ClientNotification"));
    let command = schemas.validator("CommandExecutionRequestApprovalResponse");
    let change = schemas.validator("FileChangeRequestApprovalResponse");
    let mut seen = BTreeSet::new();
    for path in wires().iter().filter(|path| path.to_str().unwrap().contains("/codex/")) {
        let lines = wire::read(path).into_iter().filter_map(|entry| match entry {
            Entry::To(line) => Some(line),
            _ => None,
        });
        for line in lines {
            let method = line["method"].as_str().unwrap_or("an answer").to_owned();
            let is_good = match (line.get("id"), line.get("result")) {
                (Some(_), Some(result)) => command(result) || change(result),
                (Some(_), None) => request(&line),
                _ => notice(&line),
            };
            assert!(is_good, "{}: {line}", path.display());
            seen.insert(method);
        }
    }
    for method in
        ["initialize", "thread/start", "thread/resume", "turn/start", "turn/interrupt", "model/list", "an answer"]
    {
        assert!(seen.contains(method), "no wire has {method}");
    }
    assert!(command(&json!({"decision": "acceptForSession"})) && command(&json!({"decision": "cancel"})));
    let rule = json!({"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}});
    assert!(command(&rule) && !command(&json!({"decision": "perhaps"})));
    let steer = json!({"id": 1, "method": "turn/steer", "params": {
        "threadId": "s", "expectedTurnId": "t", "input": [{"type": "text", "text": "x", "text_elements": []}],
    }});
    assert!(request(&steer));
    // A turn that ran on alone is listed.
    for (method, params) in [
        ("thread/backgroundTerminals/list", json!({"threadId": "s", "limit": 16})),
        ("thread/backgroundTerminals/clean", json!({"threadId": "s"})),
        ("thread/turns/list", json!({"threadId": "s", "limit": 8, "itemsView": "notLoaded"})),
        ("thread/items/list", json!({"threadId": "s", "turnId": "t", "cursor": "c"})),
    ] {
        assert!(request(&json!({"id": 1, "method": method, "params": params})), "{method}");
    }
}
