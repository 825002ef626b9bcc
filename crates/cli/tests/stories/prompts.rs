//! One prompt without a plan, what agents are refused, on which machine a run works, and why it waits.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::ensemble::{Running, User, up, wait_for_runner};
use crate::runs::program;
use crate::terminal::Terminal;

/// Says what it does, and is refused commands if the prompt asks for the tests.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "2.1.0 (stand-in)"; exit 0; }
[ "$1" = "auth" ] && { echo '{"loggedIn":true}'; exit 0; }
read -r _
echo '{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}'
read -r prompt
prompt=${prompt#*'"content":"'}
prompt=${prompt%%'","role":"user"}'*}
prompt=$(printf %b "${prompt%%'"},"parent_tool_use_id"'*}")
denials='[]'
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
case "$prompt" in
  *"run the tests"*)
    denials='[{"tool_name":"Bash","tool_use_id":"1","tool_input":{"command":"npm test"}},{"tool_name":"Bash","tool_use_id":"2","tool_input":{"command":"npm run lint"}}]'
    echo '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"1","name":"Bash","input":{"command":"npm test"}}]}}'
    lines=''
    for number in 1 2 3 4 5 6 7 8; do lines="${lines}line $number\\n"; done
    printf '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"%s"}]}}\n' "$lines" ;;
esac
said=$(printf 'done in %s: %s' "$PWD" "$prompt" | tr '\n"\\' '   ')
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"%s"}]}}\n' "$said"
printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","total_cost_usd":0.01,"usage":{"input_tokens":1500,"output_tokens":2},"permission_denials":%s}\n' "$said" "$denials"
"#;

fn stand_in() -> TempDir {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "claude", CLAUDE);
    programs
}

fn user_with(programs: &Path) -> User {
    User::new(None).with_programs(programs)
}

/// Waits until the runner has reported its offers to the server.
#[test]
fn one_prompt_is_done_in_this_directory_and_shown_as_it_goes() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    // The runner may still be looking for agents.
    let ended = user.run(&["do", "say", "hello"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let home = user.home().canonicalize().unwrap().display().to_string();
    let answer = format!("done in {home}: say hello");
    assert_eq!(ended.out.matches(&answer).count(), 1, "the answer is not repeated: {}", ended.out);
    assert!(ended.out.contains("$0.0100, tokens: 1.5k in, 2 out"), "{}", ended.out);
    assert!(ended.err.contains("with claude on"), "{}", ended.err);

    let ended = user.run_with_input(&["do", "-"], "use {{tasks.a.output}}\n");
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("use {{tasks.a.output}}"), "{}", ended.out);
    let ended = user.run(&["do", "explain {{ tasks.a.output }}"]);
    assert!(ended.code == 0 && ended.out.contains("explain {{ tasks.a.output }}"), "{}{}", ended.out, ended.err);
    assert!(user.run_with_input(&["run", "-"], "fix the tests").err.contains("ensemble do -"));
    assert!(user.fail(&["do", " "]).contains("empty"));
    assert!(user.succeed(&["do", "it is **bold**"]).contains(": it is **bold**"), "a pipe has the text as it is");
    let terminal = Terminal::open(&user, 160, 30);
    terminal.ensemble("", "do 'it is **bold**'");
    terminal.sees(": it is bold");

    let shown = user.json(&["show", "last"]);
    assert_eq!(shown["machineId"], shown["tasks"][0]["machineId"]);
    let host = user.json(&["machine", "list"])["machines"][0]["name"].clone();
    assert_eq!((&shown["machineName"], &shown["tasks"][0]["machineName"]), (&host, &host));
    assert!(user.succeed(&["show", "last"]).contains(host.as_str().unwrap()));
}

#[test]
fn more_is_said_to_an_agent_that_ended() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    assert_eq!(user.run(&["do", "begin"]).code, 0);
    let reference = user.json(&["show", "last"])["ref"].as_str().unwrap().to_owned();
    assert!(user.succeed(&["runs"]).contains(&reference) && user.succeed(&["show", &reference]).contains("begin"));
    for command in ["say", "diff", "apply", "discard", "output"] {
        assert!(user.complete(&[command, ""]).contains(&format!("{reference}\tcompleted")), "{command}");
        assert!(user.complete(&[command, &reference, ""]).contains("1\tcompleted"), "{command}");
    }
    let ended = user.run(&["say", &reference, "and now the tests"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains(": and now the tests"), "the text alone: {}", ended.out);
    let ended = user.run_with_input(&["say", "last", "1", "-"], "from a pipe");
    assert!(ended.code == 0 && ended.out.contains(": from a pipe"), "{}{}", ended.out, ended.err);
    // The result is that of the newest attempt, and the way to those before is shown.
    let earlier = format!("ensemble output {reference} 1 --attempt 2");
    assert!(ended.err.contains(&earlier), "{}", ended.err);
    assert!(user.succeed(&["show", &reference]).contains(&earlier));
    assert!(user.succeed(&["output", &reference, "1", "--attempt", "2"]).contains(": and now the tests"));
    let shown = user.json(&["show", "last"]);
    assert_eq!((&shown["tasks"][0]["attempt"], &shown["tasks"][0]["prompt"]), (&3.into(), &"begin".into()));
    assert!(user.fail(&["say", "last", "2", "x"]).contains("no task 2"));
    assert!(user.fail(&["say", "last", " "]).contains("empty"));

    let usage = user.json(&["usage"]);
    assert_eq!((&usage["total"]["attempts"], &usage["total"]["outputTokens"]), (&3.into(), &6.into()));
    let table = user.succeed(&["usage", "--by", "provider", "--days", "2"]);
    assert!(table.contains("claude") && table.contains("$0.0300") && table.contains("total"), "{table}");
    let host = user.json(&["machine", "list"])["machines"][0]["name"].clone();
    assert!(user.succeed(&["usage", "--by", "machine"]).contains(host.as_str().unwrap()));
}

#[test]
fn what_is_said_to_one_task_of_several_is_answered_by_it() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let plan = "\
defaults: {provider: claude}
tasks:
- {key: a, prompt: first}
- {key: b, prompt: second, dependsOn: [a]}
- {key: c, prompt: run the tests, dependsOn: [b]}
";
    fs::write(user.home().join("plan.yaml"), plan).unwrap();
    assert_eq!(user.run(&["run", "plan.yaml"]).code, 4, "c is refused commands");
    let ended = user.run(&["say", "last", "a", "and then?"]);
    assert_eq!(ended.code, 0, "a was refused nothing: {}{}", ended.out, ended.err);
    assert_eq!(ended.out.matches(": and then?").count(), 1, "the answer, once: {}", ended.out);
    for of_others in ["second", "refused", "npm test"] {
        assert!(!ended.out.contains(of_others), "{of_others}: {}", ended.out);
    }
    assert!(ended.out.contains(", a: completed."), "{}", ended.out);
    assert!(user.complete(&["output", "--full", "last", ""]).contains("b\tcompleted"));
    assert_eq!(user.run(&["say", "last", "c", "run the tests again", "--json"]).code, 4);
    assert_eq!(user.run(&["say", "last", "b", "well?", "--json"]).code, 0);
}

#[test]
fn one_of_several_providers_is_taken_and_named() {
    let programs = stand_in();
    let codex = "#!/bin/sh\n[ \"$1\" = \"--version\" ] && echo 'codex-cli 0.169.0'\nexit 0\n";
    program(programs.path(), "codex", codex);
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let ended = user.run(&["do", "hi"]);
    assert!(ended.err.contains("with claude (also there: codex; --provider chooses) on "), "{}", ended.err);
    let ended = user.run(&["do", "hi", "--provider", "claude"]);
    assert!(ended.err.contains("with claude on "), "{}", ended.err);
    fs::write(user.home().join("plan.yaml"), "tasks: [{prompt: x}]").unwrap();
    assert!(user.fail(&["run", "plan.yaml"]).contains("and claude and codex are offered on "));
}

#[test]
fn a_directory_that_cannot_do_is_refused_without_a_run() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    fs::write(user.home().join("file"), "").unwrap();
    for (place, said) in [("nowhere", "There is no directory"), ("file", "is not a directory")] {
        let error = user.fail(&["do", "hi", "-C", place]);
        assert!(error.contains(said) && error.contains("-C DIR"), "{error}");
    }
    fs::create_dir(user.home().join("project")).unwrap();
    let outside = user.fail(&["do", "hi", "-w", "-C", "project"]);
    assert!(outside.contains("git init") && outside.contains("not a git repository"), "{outside}");
    let mut git = std::process::Command::new("git");
    assert!(git.args(["init", "--quiet"]).current_dir(user.home().join("project")).status().unwrap().success());
    let empty = user.fail(&["do", "hi", "-w", "-C", "project"]);
    assert!(empty.contains("git commit") && empty.contains("--worktree"), "{empty}");
    assert_eq!(user.json(&["runs"])["runs"], serde_json::json!([]));
    // A task that waits for another one may work in a directory that this one makes.
    let plan = "defaults: {provider: claude}\ntasks:\n- {key: a, prompt: x}\n- {key: b, prompt: y, dependsOn: [a], workingDirectory: nowhere}\n";
    fs::write(user.home().join("plan.yaml"), plan).unwrap();
    user.succeed(&["run", "plan.yaml", "--detach"]);
    fs::write(user.home().join("plan.yaml"), "tasks: [{prompt: x, provider: claude, workingDirectory: nowhere}]")
        .unwrap();
    assert!(user.fail(&["run", "plan.yaml"]).contains("There is no directory"));
}

#[test]
fn a_task_that_is_refused_before_it_begins_says_why_once() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let ended = user.run(&["do", "hi", "-C", "/etc"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    let all = format!("{}{}", ended.out, ended.err);
    assert_eq!(all.matches("WORKING_DIRECTORY").count(), 1, "{all}");
    for useless in ["cannot be followed", "ensemble output", "ensemble retry"] {
        assert!(!all.contains(useless), "{useless}: {all}");
    }
}

#[test]
fn refused_commands_are_named_and_have_an_exit_code() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let ended = user.run(&["do", "run the tests"]);
    assert_eq!(ended.code, 4, "{}{}", ended.out, ended.err);
    let said = "2 commands were refused with the permission edit: Bash: npm test; Bash: npm run lint";
    assert!(ended.out.contains(said) && ended.out.contains("--permission bypass"), "{}", ended.out);
    assert!(ended.out.contains("  │ line 5\n  │ … 3 more lines (--full shows them)\n"), "{}", ended.out);
    assert!(user.succeed(&["show", "last"]).contains(said));
    user.succeed(&["do", "hello"]);
    let listed = user.succeed(&["runs"]);
    assert_eq!(listed.matches("completed ⚠").count(), 1, "{listed}");
    user.succeed(&["runs", "delete", "last", "-y"]);
    assert!(user.succeed(&["output", "last"]).contains("  │ line 8"), "nothing is left out of a pipe");
    assert_eq!(user.run(&["show", "last", "--watch"]).code, 4);
    assert_eq!(user.run(&["do", "run the tests", "--allow-denials", "--full"]).code, 0);

    fs::write(
        user.home().join("plan.yaml"),
        "permission: bypass\nfailOnDenial: true\ntasks:\n- {key: tests, prompt: run the tests}\n- {key: after, prompt: x, dependsOn: [tests]}\n",
    )
    .unwrap();
    let ended = user.run(&["run", "plan.yaml", "--yes"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    for said in [
        "tests had the permission edit, not bypass",
        "permissionLimit",
        "PERMISSION_DENIED",
        "after: not begun, because it waited for tests, which failed",
    ] {
        assert!(ended.out.contains(said), "{said}: {}", ended.out);
    }
    assert!(user.fail(&["output", "last", "tests", "--attempt", "7"]).contains("It has only attempt 1."));
    assert!(user.fail(&["output", "last", "after", "--attempt", "1"]).contains("it has not begun yet"));
    assert_eq!(user.run(&["runs", "-n", "0"]).code, 2);
}

#[test]
fn a_run_works_on_this_machine_unless_another_is_named() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let this = user.json(&["machine", "list"])["machines"][0]["machine"].clone();
    let elsewhere =
        user.json(&["machine", "register", "--id", "elsewhere"])["machine"]["ref"].as_str().unwrap().to_owned();
    // The machine that was registered last is this one for the command line, and has no runner.
    let id = user.succeed(&["do", "say hello", "--detach", "--provider", "claude"]);
    let shown = user.json(&["show", id.trim()]);
    assert_eq!((&shown["machineId"], &shown["status"]), (&"elsewhere".into(), &"queued".into()));
    let listed = user.succeed(&["runs"]);
    assert!(listed.contains("It is pinned to the machine") && listed.contains(&format!("({elsewhere})")), "{listed}");
    assert!(user.fail(&["do", "say hello"]).contains("ensemble runner"));
    assert!(user.fail(&["do", "say hello", "--machine", "any"]).contains("absolute"));
    assert!(user.fail(&["do", "say hello", "--machine", "nowhere"]).contains(&elsewhere));
    let home = user.home().to_str().unwrap().to_owned();
    let free = user.run(&["do", "say hello", "--machine", "any", "--directory", &home]);
    assert_eq!(free.code, 0, "{}{}", free.out, free.err);
    assert_eq!(user.json(&["show", "last"])["tasks"][0]["machineId"], this["id"]);
    let named = user.run(&["do", "say hello", "--machine", this["id"].as_str().unwrap()]);
    assert_eq!(named.code, 0, "{}{}", named.out, named.err);
    assert!(named.err.contains("not on this machine"), "{}", named.err);
    user.succeed(&["cancel", id.trim()]);
}

#[test]
fn a_run_that_waits_says_why_with_the_names_of_machines() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let (_up, _url) = up(&user, &[]);
    wait_for_runner(&user);
    fs::write(user.home().join("plan.yaml"), "tasks: [{prompt: x}, {prompt: y}]").unwrap();
    let host = user.json(&["machine", "list"])["machines"][0]["name"].as_str().unwrap().to_owned();
    let reason = format!("It is pinned to the machine {host} (");
    let mut watching = Running::start(&user, &["run", "plan.yaml", "--provider", "codex"]);
    let line = watching.line();
    assert!(line.starts_with("task 1 and 1 more tasks wait: ") && line.contains(&reason), "{line}");
    assert!(line.contains("offers claude, not codex"), "{line}");
    assert_eq!(watching.interrupt(), 130);
    for arguments in [["show", "last"].as_slice(), &["runs"]] {
        let printed = user.succeed(arguments);
        assert!(printed.contains(&reason), "{printed}");
    }
    let listed = user.json(&["runs"])["runs"][0].clone();
    assert_eq!(listed["waitingTask"], "task 1");
    assert!(listed["waitingReason"].as_str().unwrap().starts_with(&reason), "{listed}");
    let shown = user.succeed(&["machine", "show", &host]);
    assert!(shown.contains("claude  offered 2.1.0") && shown.contains("codex"), "{shown}");
    assert!(user.fail(&["machine", "show", "nowhere"]).contains(&host));
}

#[test]
fn a_doctor_finds_what_is_missing() {
    let programs = stand_in();
    let user = user_with(programs.path());
    let before = user.run(&["doctor", "--server", "http://127.0.0.1:9"]);
    assert_eq!(before.code, 1);
    let advice = before.out.lines().find(|line| line.contains('→')).unwrap();
    assert!(advice.contains("`ensemble up --listen 127.0.0.1:9`") && advice.contains("signs in"), "{}", before.out);
    assert!(before.out.contains("tasks may work in"), "{}", before.out);
    // The configuration allows the home directory only, the runner was started with more.
    let (home, more) = (user.home().to_str().unwrap(), programs.path().to_str().unwrap());
    let (_up, _url) = up(&user, &["--root", home, "--root", more]);
    wait_for_runner(&user);
    let elsewhere = user.command(&["doctor"]).current_dir(programs.path()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(0), "{}", String::from_utf8_lossy(&elsewhere.stdout));
    let ended = user.run(&["doctor"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("2.1.0, offered"), "{}", ended.out);
    let printed = user.json(&["doctor"]);
    assert_eq!(printed["ok"], true);
    let outside = user.command(&["doctor", "--json"]).current_dir("/").output().unwrap();
    assert_eq!(outside.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&outside.stdout).unwrap();
    let wrong: Vec<_> = printed["checks"].as_array().unwrap().iter().filter(|one| one["verdict"] == "wrong").collect();
    assert_eq!(wrong.len(), 1, "{printed}");
    let advice = wrong[0]["advice"].as_str().unwrap();
    assert!(
        wrong[0]["check"] == "directory" && advice.contains("`ensemble up`") && advice.contains("--root /"),
        "{printed}"
    );
}
