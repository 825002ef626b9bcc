//! Plans done by an agent on this machine. The agent is a stand-in: a script that speaks as `claude` does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::ensemble::{Going, Person, up};

/// Answers with the prompt; fails once where the prompt says so; does not end where it says so.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "0.0.0 (stand-in)"; exit 0; }
prompt=$(cat)
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
case "$prompt" in
  *"sleep for ever"*) exec sleep 600 ;;
  *"fail once"*)
    if [ ! -e failed ]; then
      touch failed
      echo '{"type":"result","subtype":"error_during_execution","is_error":true,"result":"no such luck"}'
      exit 1
    fi ;;
esac
said=$(printf 'done: %s' "$prompt" | tr '\n"\\' '   ')
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"%s"}]}}\n' "$said"
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","total_cost_usd":0.01,"usage":{"input_tokens":1,"output_tokens":2}}\n' "$said"
"#;

fn stand_in() -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    let claude = programs.path().join("claude");
    fs::write(&claude, CLAUDE).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    programs
}

fn plan(person: &Person, text: &str) {
    fs::write(person.home().join("plan.yaml"), text).unwrap();
}

fn someone(programs: &Path) -> Person {
    Person::new(None).with_programs(programs)
}

#[test]
fn a_plan_is_done_in_order_and_its_result_shown() {
    let programs = stand_in();
    let person = someone(programs.path());
    let (_up, _url) = up(&person, &[]);
    plan(
        &person,
        "title: Two steps\ndefaults: {provider: claude}\ntasks:\n\
         - {key: first, prompt: begin}\n- {key: second, dependsOn: [first], prompt: 'go on from ({{tasks.first.output}})'}\n",
    );
    let ended = person.types(&["run", "plan.yaml"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("first: completed") && ended.out.contains("second: completed"), "{}", ended.out);
    assert!(ended.out.contains("done: go on from (done: begin)"), "{}", ended.out);
    let shown = person.json(&["show", "last"]);
    assert_eq!((&shown["status"], &shown["title"]), (&"completed".into(), &"Two steps".into()));
    assert!(person.says(&["runs"]).contains("2/2"));
    assert!(person.says(&["runs", "--status", "active"]).contains("No runs"));
    let output = person.says(&["output", "last", "first"]);
    assert!(output.contains("done: begin"), "{output}");
    assert_eq!(person.says(&["output", "last", "1", "--follow"]), output);
    let machines = person.json(&["machine", "list"]);
    assert_eq!(machines["machines"][0]["online"], true);
    assert!(person.types(&["output", "last", "third"]).err.contains("first, second"));
}

#[test]
fn what_failed_is_said_and_tried_again() {
    let programs = stand_in();
    let person = someone(programs.path());
    let (_up, _url) = up(&person, &[]);
    plan(
        &person,
        "tasks:\n- {key: luck, prompt: fail once, provider: claude}\n- {key: then, prompt: x, provider: claude, dependsOn: [luck]}\n",
    );
    let ended = person.types(&["run", "plan.yaml"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("then: dependency_failed"), "{}", ended.out);
    assert!(
        ended.out.contains("ensemble output") && ended.err.contains("ensemble retry"),
        "{}{}",
        ended.out,
        ended.err
    );
    let ended = person.types(&["retry", "last"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let again = person.types(&["retry", "last"]);
    assert!(again.code == 1 && again.err.contains("nothing to try again"), "{}", again.err);
}

#[test]
fn a_run_is_cancelled_and_says_so_with_its_code() {
    let programs = stand_in();
    let person = someone(programs.path());
    let (_up, _url) = up(&person, &[]);
    plan(&person, "tasks: [{key: long, prompt: sleep for ever, provider: claude}]");
    let mut watching = Going::start(&person, &["run", "plan.yaml"]);
    loop {
        let line = watching.line();
        assert!(!line.is_empty(), "it ended too soon");
        if line.contains("long: running") {
            break;
        }
    }
    // Nobody to ask: the run goes on without its watcher.
    assert_eq!(watching.interrupt(), 130);
    assert_eq!(person.json(&["show", "last"])["status"], "running");
    person.says(&["cancel", "last", "--reason", "enough"]);
    assert_eq!(person.types(&["show", "last", "--watch"]).code, 3);
    let shown = person.json(&["show", "last"]);
    assert_eq!((&shown["status"], &shown["cancelReason"]), (&"cancelled".into(), &"enough".into()));
}
