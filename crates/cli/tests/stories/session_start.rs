//! A session is started on another computer of the account: with the real `claude`, and a stand-in for its model.

use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};

use ensemble_doubles::model::StandIn;
use serde_json::Value;
use tempfile::TempDir;

use crate::changes::claude;
use crate::ensemble::{Finished, Running, User, up, wait_for_runner};
use crate::linking::{SOON, add};
use crate::live::{log, turns};
use crate::lying::LyingServer;
use crate::runs::program;

/// The real `claude`, and a model for it.
pub(crate) struct Agent {
    pub(crate) programs: TempDir,
    _model: StandIn,
    _runtime: tokio::runtime::Runtime,
}

impl Agent {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let model = runtime.block_on(async { StandIn::start().unwrap() });
        let programs = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\nexport ANTHROPIC_BASE_URL={} ANTHROPIC_API_KEY=stand-in CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
             DISABLE_TELEMETRY=1\nexec '{}' \"$@\"\n",
            model.url(),
            claude().display()
        );
        program(programs.path(), "claude", &script);
        Self { programs, _model: model, _runtime: runtime }
    }
}

/// The id of the only machine.
fn machine(user: &User) -> String {
    user.json(&["machine", "list"])["machines"][0]["machine"]["id"].as_str().unwrap().to_owned()
}

/// Starts a session of claude on the machine.
fn start(user: &User, machine: &str, more: &[&str]) -> Finished {
    let start = ["session", "start", "--machine", machine, "--provider", "claude", "--model", "claude-sonnet-4-5"];
    user.run(&[&start[..], &["--detach"], more].concat())
}

fn has_text(log: &[Value], text: &str) -> bool {
    log.iter().any(|body| body["type"] == "text" && body["text"].as_str().is_some_and(|said| said.contains(text)))
}

#[test]
fn a_session_is_started_on_another_computer() {
    let agent = Agent::new();
    let (owner, second) = (User::new(None).with_programs(agent.programs.path()), User::new(None));
    let project = owner.home().join("project");
    std::fs::create_dir(&project).unwrap();
    let project = project.to_str().unwrap();
    let (_up, _url) = up(&owner, &[]);
    wait_for_runner(&owner);
    add(&owner, &second, &["--role", "linked"]);
    let machine = machine(&owner);
    let run = |user: &User, more: &[&str]| start(user, &machine, more);

    let begun = run(&second, &["--dir", project, "Greet me. [[say Grüße 😀]]"]);
    assert_eq!(begun.code, 0, "{}", begun.err);
    let session = begun.out.trim();
    // Both computers show the same, and the prompt is one of the second one.
    for user in [&second, &owner] {
        let log = turns(user, session, 1);
        assert!(has_text(&log, "Grüße 😀"), "{log:?}");
        assert_eq!(log.iter().filter(|body| body["type"] == "prompt").count(), 1);
        let state = log.iter().find(|body| body["type"] == "state").unwrap();
        assert_eq!((&state["directory"], &state["mode"]), (&project.into(), &"ask".into()));
    }
    owner.succeed(&["prompt", session, "And now? [[say the owner]]"]);
    assert!(has_text(&turns(&second, session, 2), "the owner"));
    assert!(second.succeed(&["sessions"]).contains("Greet me."));
    // The server knows that a session was begun, and which.
    assert!(owner.fail(&["show", "last"]).contains("No run was submitted"), "a session is no run");
    let start = owner.json(&["runs"])["runs"][0]["ref"].as_str().unwrap().to_owned();
    let task = owner.json(&["show", &start])["tasks"][0].clone();
    assert_eq!((&task["prompt"], &task["status"]), (&Value::Null, &"completed".into()), "{task}");
    let shown = owner.json(&["session", "show", session]);
    assert_eq!(task["sessionId"], shown["session"]["id"]);
    assert!(!task.to_string().contains("project") && !task.to_string().contains("Greet"), "{task}");

    assert!(owner.succeed(&["show", &start]).contains("completed"));
    // The start of a session is no run for people, and stays one for programs.
    assert!(owner.succeed(&["runs"]).starts_with("No runs."));
    assert_eq!(owner.json(&["runs"])["runs"][0]["status"], "completed");

    // What the machine does not do.
    let outside = run(&second, &["--dir", "/etc", "x"]);
    assert!(outside.code == 1 && outside.err.contains("WORKING_DIRECTORY_NOT_ALLOWED"), "{}", outside.err);
    assert!(!outside.err.contains("/etc"), "the server does not learn where: {}", outside.err);
    let relative = run(&second, &["--dir", "project"]);
    assert!(relative.code == 1 && relative.err.contains("a path on the machine"), "{}", relative.err);
    let bypass = run(&second, &["--dir", project, "--mode", "bypass"]);
    assert!(bypass.code == 1 && bypass.err.contains("only a primary one"), "{}", bypass.err);
    // A primary device may, and is on its own computer.
    let bypass = run(&owner, &["--dir", "project", "--mode", "bypass", "[[run touch made]]"]);
    assert_eq!(bypass.code, 0, "{}", bypass.err);
    turns(&owner, bypass.out.trim(), 1);
    assert!(owner.home().join("project/made").exists());
}

#[test]
fn a_server_that_lies_has_nothing_else_done() {
    let agent = Agent::new();
    let server = LyingServer::start();
    let owner = User::new(Some(&server.url)).with_programs(agent.programs.path());
    let project = owner.home().join("project");
    std::fs::create_dir(&project).unwrap();
    owner.succeed(&["login"]);
    let _runner = Running::start(&owner, &["runner"]);
    wait_for_runner(&owner);
    let machine = machine(&owner);

    // What is sealed for the first session is kept.
    let kept = Arc::new(Mutex::new(Value::Null));
    let is_leases = |line: &str, answer: &Value| {
        line == "POST /v1/orchestrator/leases" && answer["leases"][0]["sealed"].is_string()
    };
    let keep = kept.clone();
    server.lie(move |line, answer| {
        if is_leases(line, answer) {
            *keep.lock().unwrap() = answer["leases"][0]["sealed"].clone();
        }
    });
    let begun = start(&owner, &machine, &["--dir", "project", "--mode", "bypass"]);
    assert_eq!(begun.code, 0, "{}", begun.err);
    let first = begun.out.trim();
    assert!(kept.lock().unwrap().is_string());

    // Another session than the one that was asked for gets no prompt.
    let other = owner.json(&["session", "show", first])["session"]["id"].clone();
    server.lie(move |line, answer| {
        if line.starts_with("GET /v1/orchestrator/runs/") && answer["tasks"][0]["sessionId"].is_string() {
            answer["tasks"][0]["sessionId"] = other.clone();
        }
    });
    let refused = start(&owner, &machine, &["--dir", "project", "[[run touch made]]"]);
    assert!(refused.code == 1 && refused.err.contains("names another session"), "{}", refused.err);
    assert!(!log(&owner, first).iter().any(|body| body["type"] == "prompt"));

    // What was done once is not done again as another task.
    let again = kept.lock().unwrap().clone();
    server.lie(move |line, answer| {
        if is_leases(line, answer) {
            answer["leases"][0]["sealed"] = again.clone();
        }
    });
    let refused = start(&owner, &machine, &["--dir", "project"]);
    assert!(refused.code == 1 && refused.err.contains("TASK_NOT_SIGNED"), "{}", refused.err);
    server.tell_the_truth();
    assert_eq!(owner.json(&["sessions"])["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_machine_that_dies_while_it_begins_a_session_begins_it_once() {
    let agent = Agent::new();
    let server = LyingServer::start();
    let owner = User::new(Some(&server.url)).with_programs(agent.programs.path());
    std::fs::create_dir(owner.home().join("project")).unwrap();
    owner.succeed(&["login"]);
    let runner = Running::start(&owner, &["runner"]);
    wait_for_runner(&owner);
    let machine = machine(&owner);
    let pid = runner.pid().to_string();
    let (kill, killed) = mpsc::channel();
    // The session exists at the server, and the machine never learns it.
    server.lie(move |line, _| {
        if line == "POST /v1/sessions" {
            assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
            kill.send(()).unwrap();
        }
    });
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| start(&owner, &machine, &["--dir", "project"]));
        killed.recv_timeout(SOON).unwrap();
        server.tell_the_truth();
        assert_ne!(runner.ended(), 0);
        let _again = Running::start(&owner, &["runner"]);
        let begun = starting.join().unwrap();
        assert_eq!(begun.code, 0, "{}", begun.err);
        let sessions = owner.json(&["sessions"])["sessions"].as_array().unwrap().clone();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_eq!(sessions[0]["session"]["ref"], begun.out.trim());
    });
}
