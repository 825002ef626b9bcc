//! A provider whose usage limit is reached, and what a task may cost.

use std::fs;

use serde_json::Value;

use crate::ensemble::{User, up, wait_for_runner};
use crate::live::until;
use crate::runs::program;

/// Is at its limit for two hours while there is a file `at-limit` in its home directory.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "2.1.0 (stand-in)"; exit 0; }
read -r _
echo '{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}'
read -r _
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
if [ -e "$HOME/at-limit" ]; then
  echo "{\"type\":\"rate_limit_event\",\"rate_limit_info\":{\"status\":\"rejected\",\"resetsAt\":$(($(date +%s) + 7260))}}"
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You have hit your limit"}'
  exit 1
fi
arguments=$(printf %s "$*" | tr '"\n' "' ")
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"done with: $arguments\",\"total_cost_usd\":0.5}"
"#;

/// The newest run, when its task waits for the provider.
fn wait_for_limit(user: &User) -> Value {
    until("a limit", || Some(user.json(&["show", "last"])).filter(|shown| shown["tasks"][0]["waitingFor"] == "quota"))
}

#[test]
fn a_task_waits_for_its_provider_and_continues() {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "claude", CLAUDE);
    let user = User::new(None).with_programs(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let limit = user.home().join("at-limit");
    fs::write(&limit, "").unwrap();
    user.succeed(&["do", "count the plums", "--detach", "--max-cost", "2.5"]);
    let shown = wait_for_limit(&user);
    let reference = shown["ref"].as_str().unwrap();
    assert_eq!((&shown["tasks"][0]["attempt"], &shown["tasks"][0]["maxCostUsd"]), (&0.into(), &2.5.into()));
    let host = user.json(&["machine", "list"])["machines"][0]["name"].as_str().unwrap().to_owned();
    for arguments in [["show", "last"].as_slice(), &["runs"]] {
        let printed = user.succeed(arguments);
        let reason = printed.split("claude's limit on ").nth(1).unwrap_or_else(|| panic!("{printed}"));
        assert!(reason.starts_with(&format!("{host} (")), "{printed}");
        assert!(printed.contains("is reached; continues at ") && printed.contains(" (in 2 h)."), "{printed}");
    }
    let printed = user.succeed(&["show", "last"]);
    assert!(printed.contains(&format!("`ensemble retry {reference}` tries at once")), "{printed}");
    assert!(printed.contains("$2.5 a task"), "{printed}");

    // The limit is still there, and then no longer.
    user.succeed(&["retry", "last", "--detach"]);
    wait_for_limit(&user);
    fs::remove_file(&limit).unwrap();
    let ended = user.run(&["retry", "last"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("--resume s-1") && ended.out.contains("--max-budget-usd 2.5"), "{}", ended.out);
    assert!(user.fail(&["retry", "last"]).contains("nothing to try again"));

    // What costs too much fails, and a plan can say what is too much.
    let plan = "maxCostUsd: 0.4\ntasks: [{prompt: x}, {prompt: y, provider: codex, maxCostUsd: 3, dependsOn: ['0']}]";
    fs::write(user.home().join("plan.yaml"), plan).unwrap();
    let ended = user.run(&["run", "plan.yaml", "--provider", "claude"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("COST_LIMIT_REACHED") && ended.out.contains("$0.5000"), "{}", ended.out);
    let printed = user.succeed(&["show", "last"]);
    assert!(printed.contains("$0.4 to $3 a task; not kept with codex"), "{printed}");
    for bad in ["0", "-1", "nan", "inf", "1000001", "much"] {
        assert_eq!(user.run(&["do", "x", &format!("--max-cost={bad}")]).code, 2, "{bad}");
    }
    fs::write(user.home().join("plan.yaml"), "tasks: [{prompt: x, maxCostUsd: 0}]").unwrap();
    assert!(user.fail(&["plan", "check", "plan.yaml"]).contains("maxCostUsd must be more than 0"));
}
