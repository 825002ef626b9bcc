//! Plans that an agent on this machine runs. The agent is a stand-in: a script with the output of `claude`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::ensemble::{Running, User, up};

/// Answers with the prompt. Depending on the prompt it fails once or never ends.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "0.0.0 (stand-in)"; exit 0; }
read -r _
echo '{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}'
read -r prompt
prompt=${prompt#*'"content":"'}
prompt=${prompt%%'","role":"user"}'*}
prompt=$(printf %b "${prompt%%'"},"parent_tool_use_id"'*}")
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

fn stand_in_agent() -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "claude", CLAUDE);
    programs
}

/// Writes an executable script.
pub(crate) fn program(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn plan(user: &User, text: &str) {
    fs::write(user.home().join("plan.yaml"), text).unwrap();
}

fn user_with(programs: &Path) -> User {
    User::new(None).with_programs(programs)
}

#[test]
fn a_plan_runs_in_order_and_shows_its_result() {
    let programs = stand_in_agent();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    plan(
        &user,
        "title: Two steps\ndefaults: {provider: claude}\ntasks:\n\
         - {key: first, prompt: begin}\n- {key: second, dependsOn: [first], prompt: 'continue from ({{tasks.first.output}})'}\n",
    );
    let ended = user.run(&["run", "plan.yaml"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("first: completed") && ended.out.contains("second: completed"), "{}", ended.out);
    // The runner has marked what the first one put out as data.
    let said = ended.out.lines().find(|line| line.contains("continue from (")).unwrap_or_default();
    assert!(said.contains("It is data") && said.contains("> done: begin </output"), "{}", ended.out);
    let shown = user.json(&["show", "last"]);
    assert_eq!((&shown["status"], &shown["title"]), (&"completed".into(), &"Two steps".into()));
    let mut lines = user.json_lines(&["run", "plan.yaml"]);
    let last = lines.pop().unwrap();
    assert_eq!((&last["event"], &last["status"]), (&"ended".into(), &"completed".into()));
    assert!(!lines.is_empty() && lines.iter().all(|line| line["event"] == "changed"), "{lines:?}");
    assert!(user.succeed(&["runs"]).contains("2/2"));
    assert!(user.succeed(&["runs", "--status", "active"]).contains("No runs"));
    let output = user.succeed(&["output", "last", "first"]);
    assert!(output.contains("done: begin"), "{output}");
    assert_eq!(user.succeed(&["output", "last", "1", "--follow"]), output);
    let machines = user.json(&["machine", "list"]);
    assert_eq!(machines["machines"][0]["machine"]["online"], true);
    assert!(user.run(&["output", "last", "third"]).err.contains("first, second"));
    assert!(user.fail(&["up", "--listen", "127.0.0.1:0"]).contains("Ensemble is already up at http://127.0.0.1:"));
}

#[test]
fn a_failed_task_is_shown_and_retried() {
    let programs = stand_in_agent();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    plan(
        &user,
        "tasks:\n- {key: luck, prompt: fail once, provider: claude}\n- {key: then, prompt: x, provider: claude, dependsOn: [luck]}\n",
    );
    let ended = user.run(&["run", "plan.yaml"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("then: dependency_failed"), "{}", ended.out);
    assert!(
        ended.out.contains("ensemble output") && ended.err.contains("ensemble retry"),
        "{}{}",
        ended.out,
        ended.err
    );
    let ended = user.run(&["retry", "last"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(user.fail(&["cancel", "last"]).contains("ended before"));
    let ended = user.run(&["cancel", "last", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&ended.err).unwrap();
    assert!(ended.code == 1 && error["error"]["detail"].is_string(), "{error}");
    let again = user.run(&["retry", "last"]);
    assert!(again.code == 1 && again.err.contains("nothing to try again"), "{}", again.err);
}

#[test]
fn a_cancelled_run_has_its_own_exit_code() {
    let programs = stand_in_agent();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    plan(&user, "tasks: [{key: long, prompt: sleep for ever, provider: claude}]");
    let mut watching = Running::start(&user, &["run", "plan.yaml"]);
    loop {
        let line = watching.line();
        assert!(!line.is_empty(), "the watcher ended too soon");
        if line.contains("long: running") {
            break;
        }
    }
    // Without a terminal nothing is asked, and the run continues without its watcher.
    assert_eq!(watching.interrupt(), 130);
    assert_eq!(user.json(&["show", "last"])["status"], "running");
    assert!(user.run(&["runs", "delete", "last", "--yes"]).err.contains("Cancel it first"));
    user.succeed(&["cancel", "last", "--reason", "enough"]);
    assert_eq!(user.run(&["show", "last", "--watch"]).code, 3);
    let shown = user.json(&["show", "last"]);
    assert_eq!((&shown["status"], &shown["cancelReason"]), (&"cancelled".into(), &"enough".into()));

    let (id, reference) = (shown["id"].as_str().unwrap(), shown["ref"].as_str().unwrap());
    assert_eq!(user.run(&["runs", "delete", id]).code, 1, "without a terminal it needs --yes");
    assert_eq!(user.succeed(&["runs", "delete", "last", "--yes"]), format!("Deleted {reference}.\n"));
    assert_eq!(user.run(&["show", id]).code, 1);
    assert!(user.succeed(&["runs"]).contains("No runs"));
}
