//! Tasks of a run that are live sessions: watched, answered and steered like any other, and the server reads nothing of them.

use serde_json::{Value, json};

use crate::ensemble::{Running, User, up, wait_for_runner};
use crate::live::{begun, log, request, turns, until};
use crate::place::Place;

/// Submits a plan that works in the directory `work`, and returns nothing else than that it was taken.
fn submit(user: &User, plan: Value) {
    std::fs::write(user.home().join("plan.yaml"), plan.to_string()).unwrap();
    user.succeed(&["run", "plan.yaml", "--detach"]);
}

fn plan(tasks: Value) -> Value {
    let defaults = json!({ "provider": "claude", "model": "claude-sonnet-4-5", "workingDirectory": "work" });
    json!({ "maxConcurrency": 1, "defaults": defaults, "tasks": tasks })
}

fn task(user: &User, at: usize) -> Value {
    user.json(&["show", "last"])["tasks"][at].clone()
}

/// The session of the first task, once there is one.
fn session(user: &User) -> String {
    until("the task's session", || task(user, 0)["sessionId"].as_str().map(str::to_owned))
}

#[test]
fn a_task_that_is_a_session_asks_its_people_while_others_work() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    submit(
        user,
        plan(json!([
            { "key": "ask", "title": "Make it", "session": true, "prompt": "[[run touch made]] [[say canary-4711]]" },
            { "key": "other", "prompt": "[[say other]]", "permission": "plan" },
            { "key": "after", "prompt": "[[say after]]", "permission": "plan", "dependsOn": ["ask"] },
        ])),
    );
    let session = session(user);
    let asked = request(user, &session);
    let waiting = until("the task that waits", || Some(task(user, 0)).filter(|task| task["waitingFor"] == "input"));
    assert_eq!((&waiting["status"], &waiting["prompt"]), (&json!("running"), &Value::Null), "{waiting}");
    assert!(user.succeed(&["sessions", "--needs-me"]).contains("Make it"));
    // Those who look at the run see where to answer.
    let reference = user.json(&["session", "show", &session])["session"]["ref"].as_str().unwrap().to_owned();
    let advice = format!("`ensemble attach {reference}` answers it");
    assert!(user.succeed(&["show", "last"]).contains(&format!("Make it asks: {advice}")));
    let runs = user.succeed(&["runs"]);
    assert!(runs.contains("◆ asks") && runs.contains(&advice), "{runs}");
    let mut watching = Running::start(user, &["show", "last", "--watch"]);
    while !watching.line().contains(&advice) {}
    drop(watching);
    let mut watching = Running::start(user, &["show", "last", "--watch", "--json"]);
    // The run takes one task at a time, and this one only waits.
    until("the other task", || (task(user, 1)["status"] == "completed").then_some(()));
    assert!(!place.file("made").exists());
    assert_eq!(task(user, 2)["status"], "queued");

    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    until("the end of the run", || (user.json(&["show", "last"])["status"] == "completed").then_some(()));
    assert!(place.file("made").exists());
    // A program that watches reads JSON alone, to the end of the run.
    loop {
        let line: Value = serde_json::from_str(&watching.line()).unwrap();
        if line["event"] == "ended" {
            break;
        }
    }
    let log = turns(user, &session, 1);
    let begun = log.iter().find(|body| body["type"] == "turn" && body["state"] == "started").unwrap();
    assert_eq!((&begun["cause"], begun["text"].as_str().unwrap().contains("touch made")), (&json!("task"), true));
    assert!(user.succeed(&["log", &session]).contains("the task\n> [[run touch made]]"));
    // The server has counts and codes, and nothing that was said.
    let ended = task(user, 0);
    assert_eq!((ended.get("outputSummary"), &ended["changes"]), (Some(&Value::Null), &Value::Null), "{ended}");
    assert!(!ended.to_string().contains("canary") && !ended.to_string().contains("touch"), "{ended}");
    // It lives on as a session, which those who look at the run can find. A session without an agent is no `last` one.
    let named = format!("Make it in session {reference}: `ensemble attach {reference}`");
    assert!(user.succeed(&["show", "last"]).contains(&named));
    assert!(user.succeed(&["show", "last", "--watch"]).contains(&named));
    user.succeed(&["session", "create", "--title", "People only"]);
    user.succeed(&["prompt", "last", "[[say more]]"]);
    turns(user, &session, 2);
}

#[test]
fn a_session_of_a_task_is_interrupted_with_it() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    submit(user, plan(json!([{ "session": true, "prompt": "[[hang]]", "timeout": "20m" }])));
    let session = session(user);
    begun(user, &session, 1);
    user.succeed(&["cancel", "last"]);
    let cancelled = until("the end", || Some(task(user, 0)).filter(|task| task["status"] == "cancelled"));
    assert_eq!(cancelled["error"], Value::Null);
    let log = turns(user, &session, 1);
    assert!(log.iter().any(|body| body["stopReason"] == "cancelled"), "{log:#?}");

    // An interrupt in the session ends the task.
    submit(user, plan(json!([{ "session": true, "prompt": "[[hang]]" }])));
    let other =
        until("another session", || task(user, 0)["sessionId"].as_str().filter(|id| *id != session).map(str::to_owned));
    begun(user, &other, 1);
    user.succeed(&["interrupt", &other]);
    let failed = until("the end", || Some(task(user, 0)).filter(|task| task["status"] == "failed"));
    assert_eq!(failed["error"]["code"], "INTERRUPTED");
}

#[test]
fn a_task_that_is_a_session_resumes_after_its_machine_died() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let runner = Running::start(user, &["runner"]);
    wait_for_runner(user);
    submit(user, plan(json!([{ "session": true, "prompt": "[[run touch made]]" }])));
    let session = session(user);
    let first = request(user, &session);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(runner.pid()).unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    assert_ne!(runner.ended(), 0);
    let _again = Running::start(user, &["runner"]);
    // Whether the agent asks again depends on what it had written down when it died.
    until("the end of the run", || {
        let waiting = log(user, &session).into_iter().rev().find(|body| body["type"] == "permission")?;
        let asked = waiting["requestId"].as_str()?.to_owned();
        if asked != first {
            user.run(&["answer", &session, "allow", "--request", &asked]);
        }
        (user.json(&["show", "last"])["status"] == "completed").then_some(())
    });
    let log = turns(user, &session, 2);
    let prompts: Vec<&str> =
        log.iter().filter_map(|body| body["text"].as_str().filter(|_| body["cause"] == "task")).collect();
    assert_eq!(prompts.len(), 2, "{prompts:?}");
    assert!(prompts[1].contains("You were interrupted"), "{prompts:?}");
    crate::live::assert_whole(&log);
    assert_eq!(task(user, 0)["sessionId"].as_str().unwrap(), session, "the same session");
}

#[test]
fn people_are_asked_when_a_session_has_cost_what_it_may() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    let start = ["claude", "--model", "claude-sonnet-4-5", "--dir", "work", "--max-cost", "0.0001", "--detach"];
    let session = user.succeed(&[&start[..], &["[[say one]]"]].concat());
    let session = session.trim();
    turns(user, session, 1);
    user.succeed(&["prompt", session, "[[say two]]"]);
    let asked = request(user, session);
    let shown = user.succeed(&["log", session]);
    assert!(shown.contains("The session has cost $") && !shown.contains("two\n\n"), "{shown}");
    assert!(user.succeed(&["sessions", "--needs-me"]).contains("[[say one]]"));
    user.succeed(&["answer", session, "allow", "--request", &asked]);
    let log = turns(user, session, 2);
    let costs: Vec<f64> = log.iter().filter_map(|body| body["costUsd"].as_f64()).collect();
    assert!(costs.iter().all(|cost| *cost > 0.0) && costs.len() >= 2, "{costs:?}");
}
