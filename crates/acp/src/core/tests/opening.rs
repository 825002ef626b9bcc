//! Greeting, opening and closing, and what is no request at all.

use super::*;
use crate::core::Wanted;
use crate::rpc::{INVALID, NO_METHOD, NOT_FOUND, PARAMS, PARSE, SIGN_IN};

#[test]
fn an_editor_is_greeted() {
    let mut editor = Editor::new(&json!({}));
    let greeting = editor.answer(1).unwrap()["result"].clone();
    assert_eq!(greeting["protocolVersion"], 1);
    assert_eq!(greeting["agentCapabilities"]["loadSession"], true);
    assert_eq!(greeting["authMethods"][0].get("type"), None);
    let mut editor = Editor::new(&json!({"auth": {"terminal": true}}));
    assert_eq!(editor.answer(1).unwrap()["result"]["authMethods"][0]["args"], json!(["--login"]));
}

#[test]
fn what_is_no_request_gets_an_error_and_the_next_one_is_done() {
    let mut editor = Editor::new(&json!({}));
    editor.forget();
    for (line, wanted) in [("garbage", PARSE), ("[]", INVALID), (r#"{"id":5,"method":3}"#, INVALID)] {
        editor.line(line);
        assert_eq!(editor.written.pop().unwrap()["error"]["code"], wanted, "{line}");
    }
    editor.core.line(&Line::Overlong(50 << 20), editor.now);
    editor.collect();
    assert!(editor.written.pop().unwrap()["error"]["message"].as_str().unwrap().contains("52428800 bytes"));
    editor.line("");
    editor.line(r#"{"jsonrpc":"2.0","method":"unknown/notification"}"#);
    editor.line(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#);
    assert_eq!(editor.written, Vec::<Value>::new(), "a notification and a stray answer are not answered");
    let unknown = editor.request("session/fly", &json!({}));
    assert_eq!(code(editor.answer(unknown)), NO_METHOD);
    let stranger = editor.prompt("x");
    assert_eq!(code(editor.answer(stranger)), NOT_FOUND);
    let relative = editor.request("session/new", &json!({"cwd": "x", "mcpServers": []}));
    assert_eq!(code(editor.answer(relative)), PARAMS);
}

#[test]
fn the_first_request_is_a_greeting() {
    let mut editor = Editor::new(&json!({}));
    editor.core.is_initialized = false;
    let early = editor.request("session/new", &json!({"cwd": "/", "mcpServers": []}));
    assert_eq!(code(editor.answer(early)), INVALID);
}

#[test]
fn a_new_session_is_answered_when_its_agent_is_there() {
    let mut editor = Editor::new(&json!({}));
    editor.forget();
    let request = editor.request("session/new", &json!({"cwd": "/work", "mcpServers": []}));
    assert_eq!(editor.done, [Order::Open { ticket: 1, wanted: Wanted::New("/work".into()), servers: Vec::new() }]);
    editor.opened(true);
    editor.event(Event::CaughtUp);
    editor.state(Phase::Starting);
    assert_eq!(editor.written, Vec::<Value>::new(), "the editor does not know the session yet");
    editor.state(Phase::Idle);
    let first = editor.written.first().unwrap();
    assert_eq!(first["id"], request, "no update comes before the answer");
    let opened = editor.answer(request).unwrap()["result"].clone();
    assert_eq!(opened["sessionId"], SESSION);
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    assert_eq!(opened["models"]["availableModels"][1], json!({"modelId": "large", "name": "large"}));
    assert_eq!(opened["configOptions"][1]["currentValue"], "small");
    let updates = editor.updates();
    let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
    assert_eq!(kinds, ["available_commands_update", "usage_update"]);
}

#[test]
fn a_late_agent_does_not_keep_the_editor_waiting() {
    let mut editor = Editor::new(&json!({}));
    let request = editor.request("session/new", &json!({"cwd": "/work", "mcpServers": []}));
    editor.opened(true);
    editor.event(Event::CaughtUp);
    editor.passes(20);
    assert_eq!(editor.answer(request).unwrap()["result"]["sessionId"], SESSION);
    // What can be chosen comes later.
    editor.state(Phase::Idle);
    let updates = editor.updates();
    assert!(updates.iter().any(|update| update["sessionUpdate"] == "config_option_update"), "{updates:#?}");
}

#[test]
fn a_session_that_cannot_be_opened_is_an_error() {
    let mut editor = Editor::new(&json!({}));
    let request = editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.not_opened(Error::new(SIGN_IN, "Run `ensemble login`."));
    assert_eq!(code(editor.answer(request)), SIGN_IN);
    // The editor would not know whose updates they are.
    let other = SESSION.to_uppercase();
    let named = editor.request("session/load", &json!({"sessionId": other, "cwd": "/", "mcpServers": []}));
    assert_eq!(code(editor.answer(named)), NOT_FOUND);
}

#[test]
fn the_past_comes_before_the_answer_to_load() {
    let mut editor = Editor::new(&json!({}));
    editor.forget();
    let request = editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.opened(false);
    editor.state(Phase::Idle);
    editor.said(ann(ELSEWHERE), "p1", None, prompt("mine"));
    editor.said(ben(), "p2", None, prompt("theirs"));
    editor.host(turn(TurnState::Started, Some("p1"), None));
    editor.host(Content::Thought(text(0, "hm")));
    editor.host(Content::Text(text(1, "hello")));
    let call = ToolCall { tool_call_id: "call".into(), turn_id: "t".into(), ..ToolCall::default() };
    editor.host(Content::ToolCall(Box::new(ToolCall { title: Some("touch x".into()), ..call.clone() })));
    editor.host(Content::ToolCall(Box::new(ToolCall { status: Some(ToolStatus::Completed), ..call })));
    let entry = PlanEntry { content: "all".into(), priority: PlanPriority::High, status: PlanStatus::Pending };
    editor.host(Content::Plan(Plan { entries: vec![entry] }));
    editor.host(permission("gone"));
    editor.host(resolved("gone", ANN));
    editor.host(turn(TurnState::Ended, Some("p1"), Some(StopReason::EndTurn)));
    assert_eq!(editor.written, Vec::<Value>::new());
    editor.event(Event::CaughtUp);
    let answered = editor.written.iter().position(|message| message["id"] == request).unwrap();
    let last =
        editor.written.iter().rposition(|message| message["params"]["update"]["sessionUpdate"] == "plan").unwrap();
    assert!(last < answered && editor.calls().is_empty());
    let updates = editor.updates();
    let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
    let chunks = ["user_message_chunk", "user_message_chunk", "agent_thought_chunk", "agent_message_chunk"];
    assert_eq!(kinds, [&chunks[..], &["tool_call", "plan", "available_commands_update", "usage_update"]].concat());
    assert_eq!(updates[0]["content"]["text"], "mine");
    assert_eq!(updates[1]["content"]["text"], "**Ben \\*B\\*:**\n> theirs");
    assert_eq!((&updates[4]["title"], &updates[4]["status"]), (&json!("touch x"), &json!("completed")));
}

#[test]
fn a_session_that_is_closed_is_followed_no_longer() {
    let mut editor = Editor::open(&json!({}));
    let (prompt, _) = editor.begins("work");
    let closed = editor.request("session/close", &json!({"sessionId": SESSION}));
    editor.stored();
    assert_eq!(editor.answer(prompt).unwrap()["result"]["stopReason"], "cancelled");
    assert!(editor.answer(closed).unwrap().get("result").is_some());
    assert!(editor.done.contains(&Order::Leave(session())));
    assert_eq!(editor.sent().last(), Some(&Content::Control(Control::Interrupt)));
    let late = editor.prompt("more");
    assert_eq!(code(editor.answer(late)), NOT_FOUND);
}

#[test]
fn a_session_that_was_taken_away_ends_what_waits() {
    let mut editor = Editor::open(&json!({}));
    let (prompt, _) = editor.begins("work");
    editor.event(Event::Gone("You have no access.".into()));
    assert!(editor.answer(prompt).unwrap()["error"]["message"].as_str().unwrap().contains("no access"));
    assert_eq!(editor.texts(), ["\n\n> You have no access.\n\n"]);
}

#[test]
fn open_sessions_are_bounded() {
    let mut editor = Editor::new(&json!({}));
    let requests: Vec<u64> =
        (0..40).map(|_| editor.request("session/new", &json!({"cwd": "/", "mcpServers": []}))).collect();
    let refused = requests.iter().filter(|request| editor.answer(**request).is_some()).count();
    assert_eq!(refused, 8);
}

#[test]
fn what_a_request_lacks_is_a_matter_of_its_parameters() {
    let mut editor = Editor::new(&json!({}));
    let again = editor.request("initialize", &json!({"protocolVersion": 1}));
    assert_eq!(code(editor.answer(again)), INVALID);
    for version in [json!("1"), json!(null), json!(-1), json!(65_536)] {
        editor.core.is_initialized = false;
        let odd = editor.request("initialize", &json!({"protocolVersion": version}));
        assert_eq!(code(editor.answer(odd)), PARAMS, "{version}");
    }
    let newer = editor.request("initialize", &json!({"protocolVersion": 2}));
    assert_eq!(editor.answer(newer).unwrap()["result"]["protocolVersion"], 1);
    for (method, params) in [
        ("authenticate", json!({})),
        ("authenticate", json!({"methodId": "magic"})),
        ("session/prompt", json!({"prompt": []})),
        ("session/load", json!({"cwd": "/", "mcpServers": []})),
        ("session/resume", json!({"sessionId": 7})),
        ("session/close", json!({})),
        ("session/set_mode", json!({"modeId": "ask"})),
    ] {
        let odd = editor.request(method, &params);
        assert_eq!(code(editor.answer(odd)), PARAMS, "{method} {params}");
    }
    editor.request("authenticate", &json!({"methodId": "login"}));
    assert_eq!(editor.done, [Order::SignedIn { ticket: 1 }]);
}

#[test]
fn the_servers_of_the_editor_are_passed_on_and_what_becomes_of_them_is_said_once() {
    let sent = json!([{"name": "x", "command": "/x", "args": ["y"], "env": [{"name": "KEY", "value": "hush"}]}]);
    for (method, why) in [("session/new", None), ("session/load", Some("The MCP servers stay here.".to_owned()))] {
        let mut editor = Editor::new(&json!({}));
        editor.left_out.clone_from(&why);
        editor.request(method, &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": sent}));
        let Some(Order::Open { servers, .. }) = editor.done.pop() else { panic!() };
        assert_eq!(servers, ensemble_agent::McpServer::read_all(Some(&sent)).unwrap());
        editor.opened(false);
        editor.state(Phase::Idle);
        editor.event(Event::CaughtUp);
        editor.state(Phase::Idle);
        let said = editor.texts().iter().filter(|text| text.contains("MCP servers")).count();
        assert_eq!(said, why.into_iter().count());
    }
}

#[test]
fn a_prompt_names_the_directory_that_was_signed_until_the_machine_has_said_a_state() {
    for (has_state, directory) in [(false, "/signed"), (true, "/work")] {
        let mut editor = Editor::new(&json!({}));
        editor.directory = Some("/signed".to_owned());
        editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
        editor.opened(false);
        if has_state {
            editor.state(Phase::Idle);
        }
        editor.event(Event::CaughtUp);
        editor.forget();
        editor.prompt("go");
        let [Content::Prompt(prompt)] = &editor.sent()[..] else { panic!() };
        assert_eq!(prompt.directory.as_deref(), Some(directory));
    }
}

#[test]
fn servers_in_another_shape_are_a_matter_of_the_parameters() {
    for servers in [json!({}), json!([{"name": "x"}]), json!([{"type": "pigeon", "name": "x", "url": "https://h"}])] {
        let mut editor = Editor::new(&json!({}));
        for method in ["session/new", "session/load", "session/resume"] {
            let odd = editor.request(method, &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": servers}));
            assert_eq!(code(editor.answer(odd)), PARAMS, "{method} {servers}");
        }
        assert_eq!(editor.done, []);
    }
}

#[test]
fn an_old_editor_gets_nothing_that_it_does_not_know() {
    let kinds = |editor: &mut Editor| -> Vec<String> {
        editor.updates().iter().map(|update| update["sessionUpdate"].as_str().unwrap().to_owned()).collect()
    };
    let later = ["session_info_update", "usage_update", "config_option_update"];
    let mut editor = Editor::new(&json!({}));
    editor.core.is_initialized = false;
    editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {"fs": {}}}));
    editor.forget();
    editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.opened(false);
    editor.state(Phase::Idle);
    editor.event(Event::CaughtUp);
    editor.event(Event::Titled("A title".to_owned()));
    editor.host(state(Phase::Idle, Mode::Plan));
    let old = kinds(&mut editor);
    assert!(old.contains(&"current_mode_update".to_owned()), "{old:?}");
    assert!(!old.iter().any(|kind| later.contains(&kind.as_str())), "{old:?}");
    editor.host(permission("r1"));
    editor.host(resolved("r1", BEN));
    let calls: Vec<Value> = editor.calls().iter().map(|call| call["method"].clone()).collect();
    assert_eq!(calls, ["session/request_permission"], "it does not know that a request can be cancelled");

    // One that uses what is newer knows the rest of it.
    editor.request("session/set_config_option", &json!({"sessionId": SESSION, "configId": "x", "value": "y"}));
    editor.event(Event::Titled("Another title".to_owned()));
    editor.host(state(Phase::Idle, Mode::Ask));
    let new = kinds(&mut editor);
    assert!(later.iter().all(|kind| new.iter().any(|other| other == kind)), "{new:?}");
    editor.host(permission("r2"));
    editor.host(resolved("r2", BEN));
    assert!(editor.calls().iter().any(|call| call["method"] == "$/cancel_request"));
}
