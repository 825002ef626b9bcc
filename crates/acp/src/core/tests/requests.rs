//! Requests of the agent and their answers; modes and models.

use super::*;
use crate::rpc::{INTERNAL, PARAMS};

fn select(editor: &mut Editor, call: &Value, option: &str) {
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    editor.line(&json!({"jsonrpc": "2.0", "id": call["id"], "result": outcome}).to_string());
}

#[test]
fn a_permission_is_asked_and_answered() {
    let mut editor = Editor::open(&json!({}));
    editor.begins("touch x");
    editor.sent();
    editor.host(permission("r1"));
    let [call] = editor.calls().try_into().unwrap();
    assert_eq!(
        (&call["method"], &call["params"]["sessionId"]),
        (&json!("session/request_permission"), &json!(SESSION))
    );
    let asked = &call["params"]["toolCall"];
    assert_eq!((&asked["toolCallId"], &asked["title"]), (&json!("call"), &json!("touch x")));
    assert_eq!(asked["content"][0]["content"]["text"], "````\ntouch x\n```\n````", "it cannot leave its block");
    assert_eq!(call["params"]["options"][1], json!({"optionId": "no", "name": "no", "kind": "reject_once"}));
    let digest = format!("digest-{}", editor.seq);
    select(&mut editor, &call, "yes");
    let (request_id, option_id) = ("r1".to_owned(), Some("yes".to_owned()));
    let answer = Answer { request_id, digest, option_id, answers: None, message: None };
    assert_eq!(editor.done.len(), 1);
    editor.receipt(ReceiptOutcome::Done, None);
    assert_eq!(editor.sent(), [Content::Answer(answer)]);
    editor.host(resolved("r1", ANN));
    assert!(editor.calls().is_empty() && editor.texts().is_empty());
}

#[test]
fn an_answer_that_comes_too_late_is_refused_and_that_is_shown() {
    let mut editor = Editor::open(&json!({}));
    editor.host(permission("r1"));
    let [call] = editor.calls().try_into().unwrap();
    editor.host(resolved("r1", BEN));
    let [withdrawn] = editor.calls().try_into().unwrap();
    assert_eq!(withdrawn["method"], "$/cancel_request");
    assert_eq!(withdrawn["params"], json!({"requestId": call["id"]}));
    select(&mut editor, &call, "yes");
    assert_eq!(editor.sent(), []);
    let texts = editor.texts();
    assert!(texts[0].contains("superseded") && texts[0].contains("Ben"), "{texts:#?}");

    // An editor that gives the request up says nothing.
    editor.host(permission("r2"));
    let [call] = editor.calls().try_into().unwrap();
    editor.host(resolved("r2", BEN));
    editor.line(&json!({"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32800, "message": "x"}}).to_string());
    assert_eq!(editor.texts(), Vec::<String>::new());

    // The machine decides who was first.
    editor.host(permission("r3"));
    let [call] =
        editor.calls().into_iter().filter(|call| call["id"].is_number()).collect::<Vec<_>>().try_into().unwrap();
    select(&mut editor, &call, "yes");
    editor.receipt(ReceiptOutcome::Rejected, Some(ReceiptCode::Superseded));
    assert!(editor.texts()[0].contains("does not count: superseded"));
}

#[test]
fn a_request_without_an_answer_stays_open() {
    let mut editor = Editor::open(&json!({}));
    editor.host(permission("r1"));
    let [call] = editor.calls().try_into().unwrap();
    select(&mut editor, &call, "made up");
    assert_eq!(editor.sent(), []);
    editor.passes(2);
    assert!(editor.texts()[0].contains("ensemble answer"));
    editor.state(Phase::Waiting);
    assert!(editor.calls().is_empty(), "it is not asked twice");

    // An editor gives its requests up when it cancels the turn.
    let mut editor = Editor::open(&json!({}));
    editor.begins("touch x");
    editor.host(permission("r2"));
    let [call] = editor.calls().try_into().unwrap();
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    editor.line(&json!({"jsonrpc": "2.0", "id": call["id"], "result": outcome}).to_string());
    editor.cancel();
    editor.passes(2);
    assert_eq!(editor.texts(), Vec::<String>::new());
}

#[test]
fn what_is_open_is_asked_when_a_session_is_loaded() {
    let mut editor = Editor::new(&json!({}));
    editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.opened(false);
    editor.host(permission("r1"));
    assert!(editor.calls().is_empty());
    editor.event(Event::CaughtUp);
    assert_eq!(editor.calls().len(), 1);
}

fn question() -> Content {
    let options = vec![
        QuestionOption { label: "red".into(), description: None },
        QuestionOption { label: "blue".into(), description: Some("as the sky".into()) },
    ];
    let item = |id: &str, options, multiple| QuestionItem {
        id: id.into(),
        text: format!("Which {id}?"),
        header: None,
        options,
        multiple,
    };
    let questions =
        vec![item("one", Some(options.clone()), false), item("all", Some(options), true), item("free", None, false)];
    Content::Question(Question { request_id: "q1".into(), tool_call_id: None, questions })
}

#[test]
fn a_question_is_a_form_where_the_editor_has_forms() {
    let mut editor = Editor::open(&json!({"elicitation": {"form": {}}}));
    editor.host(question());
    let [call] = editor.calls().try_into().unwrap();
    assert_eq!(call["method"], "elicitation/create");
    let properties = &call["params"]["requestedSchema"]["properties"];
    assert_eq!(properties["one"]["oneOf"][1]["const"], "blue");
    assert_eq!((&properties["all"]["type"], &properties["free"]["type"]), (&json!("array"), &json!("string")));
    let content = json!({"one": "red", "all": ["red", "blue"], "free": "x", "more": 1});
    let result = json!({"action": "accept", "content": content});
    editor.line(&json!({"jsonrpc": "2.0", "id": call["id"], "result": result}).to_string());
    let sent: Vec<Content> = editor.sent();
    let [Content::Answer(answer)] = sent.as_slice() else { panic!("no answer: {sent:?}") };
    let answers = answer.answers.clone().unwrap();
    assert_eq!(
        (answers.len(), &answers["one"], &answers["all"]),
        (3, &vec!["red".to_owned()], &vec!["red".into(), "blue".into()])
    );
}

#[test]
fn a_question_is_a_text_elsewhere() {
    let mut editor = Editor::open(&json!({}));
    editor.host(question());
    assert!(editor.calls().is_empty());
    let texts = editor.texts();
    assert!(
        texts[0].contains("Which one?") && texts[0].contains("ensemble answer abcdefgh --request q1"),
        "{texts:#?}"
    );
}

#[test]
fn modes_and_models_are_chosen() {
    let mut editor = Editor::open(&json!({}));
    let unknown = editor.request("session/set_mode", &json!({"sessionId": SESSION, "modeId": "yolo"}));
    assert_eq!(code(editor.answer(unknown)), PARAMS);
    let request = editor.request("session/set_mode", &json!({"sessionId": SESSION, "modeId": "plan"}));
    assert_eq!(editor.answer(request), None, "not before the machine has taken it");
    // Another one waits: it is made in the mode that is chosen now.
    let back = editor.request("session/set_mode", &json!({"sessionId": SESSION, "modeId": "ask"}));
    editor.receipt(ReceiptOutcome::Done, None);
    assert_eq!(editor.answer(request), None, "not before the agent has confirmed it");
    let set = |mode, seen| Content::Control(Control::SetMode(SetMode { mode, seen }));
    assert_eq!(editor.sent(), [set(Mode::Plan, Mode::Ask)]);
    editor.host(state(Phase::Idle, Mode::Plan));
    assert_eq!(editor.answer(request).unwrap()["result"], json!({}));
    editor.receipt(ReceiptOutcome::Done, None);
    assert_eq!(editor.sent(), [set(Mode::Ask, Mode::Plan)]);
    // An agent that confirms it later does not keep the editor waiting.
    editor.passes(5);
    assert_eq!(editor.answer(back).unwrap()["result"], json!({}));

    let params = json!({"sessionId": SESSION, "configId": "model", "value": "large"});
    let request = editor.request("session/set_config_option", &params);
    editor.receipt(ReceiptOutcome::Done, None);
    let options = editor.answer(request).unwrap()["result"]["configOptions"].clone();
    assert_eq!(options[1]["currentValue"], "large");

    let request = editor.request("session/set_model", &json!({"sessionId": SESSION, "modelId": "large"}));
    editor.receipt(ReceiptOutcome::Rejected, Some(ReceiptCode::NotAllowed));
    assert_eq!(code(editor.answer(request)), INTERNAL);
    let request = editor.request("session/set_mode", &json!({"sessionId": SESSION, "modeId": "plan"}));
    editor.passes(15);
    assert_eq!(code(editor.answer(request)), INTERNAL);
    let params = json!({"sessionId": SESSION, "configId": "colour", "value": "x"});
    let request = editor.request("session/set_config_option", &params);
    assert_eq!(code(editor.answer(request)), PARAMS);
}
