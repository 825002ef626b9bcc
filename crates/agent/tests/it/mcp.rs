//! The real programs use the MCP server of an editor.

use std::path::Path;
use std::time::Instant;

use ensemble_agent::{Event, Kind, McpServer, Start};
use ensemble_protocol::transcript::words::{Mode, OptionKind};
use serde_json::json;

use crate::live::{Place, SOON};
use crate::stories::option;

fn calls_the_tool_of_a_server(kind: Kind, tool: &str) {
    let mut place = Place::new(kind, "calls_the_tool_of_a_server");
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/acp-client/notes.mjs").canonicalize().unwrap();
    let notes = place.file("notes");
    let servers = json!([{
        "name": "notes", "command": "node", "args": [server, notes], "env": [{"name": "NOTES_KEY", "value": "hush"}],
    }]);
    let mcp_servers = McpServer::read_all(Some(&servers)).unwrap();
    let mut live = place.begin(Start { mcp_servers, ..place.start(Mode::Ask) });
    let begun = Instant::now();
    let asked = loop {
        live.prompt(&format!(r#"[[tool {tool} {{"text":"buy milk"}}]]"#));
        let is_either = |event: &Event| matches!(event, Event::Permission(_) | Event::TurnEnded { .. });
        if let Event::Permission(asked) = live.until("a permission", is_either) {
            break asked;
        }
        // It may connect to servers after it has said that it is ready.
        assert!(begun.elapsed() < SOON, "the agent does not know the tool: {:#?}", live.events);
    };
    assert!(!notes.exists(), "it is not allowed yet");
    let shown = if kind == Kind::Opencode { "does not say what it calls it with" } else { "buy milk" };
    assert!(asked.detail.contains(shown), "{asked:#?}");
    live.choose(&asked.request, option(&asked, &OptionKind::AllowOnce));
    live.turn_ends();
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "buy milk hush\n");
    live.stop();
}

#[test]
fn claude_calls_the_tool_of_an_mcp_server() {
    calls_the_tool_of_a_server(Kind::Claude, "mcp__notes__add");
}

#[test]
fn codex_calls_the_tool_of_an_mcp_server() {
    calls_the_tool_of_a_server(Kind::Codex, "mcp__notes/add");
}

#[test]
fn opencode_calls_the_tool_of_an_mcp_server() {
    calls_the_tool_of_a_server(Kind::Opencode, "notes_add");
}
