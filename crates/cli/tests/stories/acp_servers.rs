//! The MCP servers of an editor reach the agent on this computer, and nothing of them that is secret reaches anything else.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::acp::Editor;
use crate::ensemble::{User, up};
use crate::live::{host_of, kill, log, until};
use crate::place::Place;

/// The servers of an editor: one whose tool writes notes and this key into a file.
fn servers(notes: &Path, key: &str) -> Value {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/acp-client/notes.mjs").canonicalize().unwrap();
    let env = json!([{"name": "NOTES_KEY", "value": key}]);
    json!([{"name": "notes", "command": "node", "args": [program, notes], "env": env}])
}

/// Has the agent note this, and allows it.
fn note(editor: &mut Editor, session: &str, tool: &str, text: &str) {
    let tag = editor.prompt(session, &format!(r#"[[tool {tool} {{"text":"{text}"}}]]"#));
    let (number, asked) = editor.asked();
    // opencode tells what it calls a tool with after it was allowed.
    assert!(tool == "notes_add" || asked.to_string().contains(text), "{asked:#}");
    editor.choose(number, &asked, "allow_once");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Only this user's own files have the key, and no process has it among its arguments.
fn assert_kept_secret(user: &User, session: &str, key: &str) {
    assert!(!json!(log(user, session)).to_string().contains(key), "the transcript has it");
    for path in files_below(&user.files()) {
        if String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(key) {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", path.display());
        }
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&arguments).contains(key), "{}", process.path().display());
    }
}

fn uses_the_servers_of_an_editor(place: &Place, agent: &str, tool: &str) {
    const KEY: &str = "hush-1b7f";
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let notes = place.file("notes");
    let mut editor = Editor::start(user, &["--agent", agent], false);
    let opened = editor.done("session/new", &json!({"cwd": place.file(""), "mcpServers": servers(&notes, KEY)}));
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    note(&mut editor, &session, tool, "one");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), format!("one {KEY}\n"));
    let shown = log(user, &session).into_iter().find(|body| body["title"] == "MCP server notes (stdio)").unwrap();
    assert!(shown.to_string().contains("node (with 2 arguments)"), "{shown:#}");
    assert_kept_secret(user, &session, KEY);

    // The host has them after a restart too.
    kill(host_of(user).unwrap());
    until("the end of the host", || host_of(user).is_none().then_some(()));
    note(&mut editor, &session, tool, "two");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), format!("one {KEY}\ntwo {KEY}\n"));

    // An editor that opens the session has other ones, and the agent gets these.
    editor.close();
    let mut editor = Editor::start(user, &[], false);
    let other = json!({"sessionId": session, "cwd": "/", "mcpServers": servers(&notes, "another")});
    editor.done("session/load", &other);
    note(&mut editor, &session, tool, "three");
    assert!(std::fs::read_to_string(&notes).unwrap().ends_with("three another\n"));
    editor.close();
    user.succeed(&["stop", &session]);
}

#[test]
fn acp_gives_claude_the_mcp_servers_of_the_editor() {
    uses_the_servers_of_an_editor(&Place::new(), "claude", "mcp__notes__add");
}

#[test]
fn acp_gives_codex_the_mcp_servers_of_the_editor() {
    uses_the_servers_of_an_editor(&Place::new(), "codex", "mcp__notes/add");
}

#[test]
fn acp_gives_opencode_the_mcp_servers_of_the_editor() {
    uses_the_servers_of_an_editor(&Place::with_agent("opencode", "opencode"), "opencode", "notes_add");
}

#[test]
fn acp_gives_no_server_of_the_editor_to_another_machine() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    crate::ensemble::wait_for_runner(user);
    let machine = user.json(&["machine", "list"])["machines"][0]["machine"]["ref"].as_str().unwrap().to_owned();
    let work = place.file("").canonicalize().unwrap();
    let named = ["--machine", &machine, "--dir", work.to_str().unwrap(), "--provider", "claude"];
    let mut editor = Editor::start(user, &named, false);
    let sent = json!({"cwd": "/", "mcpServers": servers(&place.file("notes"), "hush")});
    let opened = editor.done("session/new", &sent);
    editor.sees("agent_message_chunk", "not passed on");
    let session = opened["sessionId"].as_str().unwrap();
    assert!(!json!(log(user, session)).to_string().contains("MCP server"));
    editor.close();
    user.succeed(&["stop", session]);
}

#[test]
fn acp_says_at_once_that_there_is_no_such_session() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let mut editor = Editor::start(user, &[], false);
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057";
    let sent = json!({"sessionId": unknown, "cwd": "/", "mcpServers": servers(&place.file("notes"), "hush")});
    // It would wait for a host that takes the servers. A busy machine is asked again.
    until("an answer at once", || {
        let begun = Instant::now();
        let refused = editor.refused("session/load", &sent);
        assert_eq!(refused["code"], -32_002, "{refused:#}");
        (begun.elapsed() < Duration::from_secs(20)).then_some(())
    });
}
