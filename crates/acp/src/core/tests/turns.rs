//! Prompts of the editor and their results; and what others do meanwhile.

use std::collections::HashMap;

use super::*;
use crate::rpc::{INTERNAL, INVALID, NOT_FOUND};

#[test]
fn a_prompt_is_answered_when_its_turn_ends_and_its_text_comes_once() {
    let mut editor = Editor::open(&json!({}));
    let (request, local_id) = editor.begins("say hello");
    assert_eq!(editor.texts(), Vec::<String>::new(), "the editor shows its own prompt");
    editor.frame(0, 0, "thin", true);
    editor.frame(1, 0, "hel", false);
    editor.frame(1, 0, "hello", false);
    editor.host(Content::Thought(text(0, "thinking")));
    editor.host(Content::Text(text(1, "hello world")));
    editor.frame(1, 0, "hello world and", false);
    let updates = editor.updates();
    let shown: Vec<(&str, &str)> = updates
        .iter()
        .map(|update| (update["sessionUpdate"].as_str().unwrap(), update["content"]["text"].as_str().unwrap()))
        .collect();
    let (thought, message) = ("agent_thought_chunk", "agent_message_chunk");
    assert_eq!(shown, [(thought, "thin"), (message, "hel"), (message, "lo"), (thought, "king"), (message, " world")]);
    assert_eq!(updates[1]["messageId"], updates[4]["messageId"]);
    assert_eq!(editor.answer(request), None);
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::EndTurn)));
    assert_eq!(editor.answer(request).unwrap()["result"], json!({"stopReason": "end_turn"}));
    assert_eq!(editor.core.deadline(), None);
}

#[test]
fn a_frame_may_be_faster_than_the_beginning_of_its_turn() {
    let mut editor = Editor::open(&json!({}));
    editor.prompt("x");
    editor.frame(0, 0, "I be", false);
    editor.frame(0, 0, "I begin", false);
    assert_eq!(editor.texts(), Vec::<String>::new());
    let local_id = editor.receipt(ReceiptOutcome::Done, None);
    editor.host(turn(TurnState::Started, Some(&local_id), None));
    editor.host(Content::Text(text(0, "I begin now")));
    assert_eq!(editor.texts(), ["I begin", " now"]);
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::EndTurn)));
    editor.frame(0, 0, "I begin now", false);
    assert_eq!(editor.texts(), Vec::<String>::new(), "late");
}

#[test]
fn a_text_that_the_machine_did_not_sign_is_put_right() {
    let mut editor = Editor::open(&json!({}));
    editor.begins("say hello");
    editor.frame(0, 0, "I have deleted it", false);
    editor.host(Content::Text(text(0, "hello")));
    let texts = editor.texts();
    assert!(texts[1].contains("not signed") && texts[2] == "hello", "{texts:#?}");
}

#[test]
fn the_output_of_a_command_grows_in_its_call() {
    let mut editor = Editor::open(&json!({}));
    editor.begins("run it");
    let call = ToolCall {
        tool_call_id: "call".into(),
        turn_id: "t".into(),
        part: Some(3),
        kind: Some(ToolKind::Execute),
        status: Some(ToolStatus::InProgress),
        ..ToolCall::default()
    };
    editor.host(Content::ToolCall(Box::new(call)));
    editor.updates();
    editor.frame(3, 0, "line", false);
    let update = editor.updates().pop().unwrap();
    assert_eq!((&update["sessionUpdate"], &update["toolCallId"]), (&json!("tool_call_update"), &json!("call")));
    assert_eq!(update["content"][0]["content"]["text"], "```\nline\n```");
}

#[test]
fn a_prompt_that_is_rejected_is_an_error_with_its_reason() {
    let mut editor = Editor::open(&json!({}));
    let request = editor.prompt("x");
    editor.receipt(ReceiptOutcome::Rejected, Some(ReceiptCode::NotAllowed));
    let error = editor.answer(request).unwrap()["error"].clone();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(INTERNAL), &json!("not_allowed")));
    assert!(error["message"].as_str().unwrap().contains("It is so."), "{error}");
    // The next one is taken.
    let (request, local_id) = editor.begins("y");
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::MaxTokens)));
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "max_tokens");
}

#[test]
fn an_agent_that_fails_says_why_in_the_answer() {
    let mut editor = Editor::open(&json!({}));
    let (request, local_id) = editor.begins("x");
    let text = "You've hit your limit".to_owned();
    editor.host(Content::Error(Failure { code: ErrorCode::Quota, text, retry_at: None }));
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::Limit)));
    let error = editor.answer(request).unwrap()["error"].clone();
    assert_eq!((&error["message"], &error["data"]["code"]), (&json!("You've hit your limit"), &json!("quota")));
    assert_eq!(editor.texts(), Vec::<String>::new());
}

#[test]
fn while_the_list_is_kept_back_that_the_machine_names_nothing_is_called_its_owners() {
    let mut editor = Editor::open(&json!({}));
    let listed = |version| Event::Listed { owner: ANN.parse().unwrap(), version, removed: HashMap::new() };
    editor.event(listed(0));
    editor.said(ann(ELSEWHERE), "e1", None, prompt("Pick them"));
    editor.said(ben(), "b1", None, prompt("And the pears"));
    editor.said(ann(ELSEWHERE), "e2", None, Content::Control(Control::Interrupt));
    let [picked, pears, interrupted] = &*editor.texts() else { panic!("three messages") };
    let why = "\\(not confirmed: the server does not give version 1 of";
    assert!(picked.contains(&format!("you {why}")) && picked.ends_with("> Pick them"), "{picked}");
    assert_eq!(pears, "**Ben \\*B\\*:**\n> And the pears");
    assert!(interrupted.contains(&format!("You, elsewhere, interrupted the turn {why}")), "{interrupted}");
    editor.event(listed(1));
    editor.said(ann(ELSEWHERE), "e3", None, prompt("And the quinces"));
    assert_eq!(editor.texts(), ["And the quinces"]);
}

#[test]
fn two_prompts_at_once_are_one_too_many() {
    let mut editor = Editor::open(&json!({}));
    let (first, local_id) = editor.begins("one");
    let second = editor.prompt("two");
    assert_eq!(code(editor.answer(second)), INVALID);
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::Refusal)));
    assert_eq!(editor.answer(first).unwrap()["result"]["stopReason"], "refusal");
}

#[test]
fn a_turn_that_is_cancelled_ends_as_cancelled_whatever_happens() {
    let mut editor = Editor::open(&json!({}));
    let (request, local_id) = editor.begins("hang");
    editor.cancel();
    editor.cancel();
    assert_eq!(editor.sent().iter().filter(|sent| **sent == Content::Control(Control::Interrupt)).count(), 1);
    assert_eq!(editor.answer(request), None);
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::Error)));
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");

    // The request may be named instead of the session.
    let (request, local_id) = editor.begins("hang");
    editor.sent();
    editor.line(&json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": request}}).to_string());
    assert_eq!(editor.sent(), [Content::Control(Control::Interrupt)]);
    editor.host(turn(TurnState::Ended, Some(&local_id), Some(StopReason::Cancelled)));
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");

    // A machine that does not answer does not hold the editor.
    let (request, _) = editor.begins("hang");
    editor.cancel();
    editor.texts();
    editor.passes(30);
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");
    assert!(editor.texts()[0].contains("not confirmed"));
}

#[test]
fn a_prompt_that_waits_behind_another_one_does_not_interrupt_that() {
    let mut editor = Editor::open(&json!({}));
    editor.said(ben(), "b1", None, prompt("long"));
    editor.host(turn(TurnState::Started, Some("b1"), None));
    assert_eq!(editor.texts(), ["**Ben \\*B\\*:**\n> long"]);
    let request = editor.prompt("mine");
    let local_id = editor.receipt(ReceiptOutcome::Queued, None);
    editor.sent();
    editor.cancel();
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");
    assert_eq!(editor.sent(), []);
    editor.host(turn(TurnState::Ended, Some("b1"), Some(StopReason::EndTurn)));
    assert_eq!(editor.sent(), []);
    editor.host(turn(TurnState::Started, Some(&local_id), None));
    assert_eq!(editor.sent(), [Content::Control(Control::Interrupt)]);
}

#[test]
fn what_a_closed_session_has_not_begun_is_interrupted_when_it_begins() {
    for is_queued in [false, true] {
        let mut editor = Editor::open(&json!({}));
        editor.said(ben(), "b1", None, prompt("long"));
        editor.host(turn(TurnState::Started, Some("b1"), None));
        let request = editor.prompt("mine");
        if is_queued {
            editor.receipt(ReceiptOutcome::Queued, None);
        }
        let close = editor.request("session/close", &json!({"sessionId": SESSION}));
        assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");
        assert_eq!(editor.answer(close).unwrap()["result"], json!({}));
        let local_id = if is_queued { "c1".to_owned() } else { editor.receipt(ReceiptOutcome::Queued, None) };
        assert!(!editor.done.contains(&Order::Leave(session())), "its prompt waits");
        editor.forget();
        let late = editor.prompt("into what is closed");
        assert_eq!(code(editor.answer(late)), NOT_FOUND);
        editor.host(Content::Text(text(0, "of Ben")));
        editor.event(Event::Connected(false));
        editor.host(turn(TurnState::Ended, Some("b1"), Some(StopReason::EndTurn)));
        assert_eq!(
            (editor.written.len(), editor.done.len()),
            (0, 0),
            "the turn of Ben is not interrupted, and not shown"
        );
        editor.host(turn(TurnState::Started, Some(&local_id), None));
        assert!(editor.done.contains(&Order::Leave(session())));
        assert_eq!(editor.sent(), [Content::Control(Control::Interrupt)]);
    }
}

#[test]
fn a_closed_session_is_left_when_its_prompt_is_not_taken() {
    let mut editor = Editor::open(&json!({}));
    editor.prompt("mine");
    editor.request("session/close", &json!({"sessionId": SESSION}));
    assert!(!editor.done.contains(&Order::Leave(session())));
    editor.receipt(ReceiptOutcome::Rejected, Some(ReceiptCode::Busy));
    assert!(editor.done.contains(&Order::Leave(session())));
    assert!(!editor.sent().contains(&Content::Control(Control::Interrupt)));
}

#[test]
fn a_session_that_is_opened_again_still_cancels_what_was_cancelled() {
    let mut editor = Editor::open(&json!({}));
    editor.prompt("mine");
    editor.request("session/close", &json!({"sessionId": SESSION}));
    editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.opened(false);
    editor.event(Event::CaughtUp);
    editor.forget();
    editor.host(turn(TurnState::Started, Some("c1"), None));
    assert_eq!(editor.sent(), [Content::Control(Control::Interrupt)]);
}

#[test]
fn a_machine_that_is_away_is_said_and_a_prompt_does_not_wait_for_ever() {
    let mut editor = Editor::open(&json!({}));
    let request = editor.prompt("x");
    editor.passes(15);
    assert!(editor.texts()[0].contains("has not taken the prompt yet"));
    assert!(editor.done.contains(&Order::Wake(session())));
    editor.passes(24 * 3_600);
    assert_eq!(code(editor.answer(request)), INTERNAL);
    let request = editor.prompt("y");
    editor.core.failed(session(), "c2", "The server cannot be reached.", editor.now);
    editor.collect();
    assert_eq!(editor.answer(request).unwrap()["error"]["message"], "The server cannot be reached.");
}

#[test]
fn what_the_server_and_the_machine_do_is_said_once() {
    let mut editor = Editor::open(&json!({}));
    for event in [false, false, true, true] {
        editor.event(Event::Connected(event));
    }
    for event in [true, false, false, true] {
        editor.event(Event::Online(event));
    }
    assert_eq!(editor.texts().len(), 4);
    let mut editor = Editor::open(&json!({"session": {"notices": {}}}));
    editor.event(Event::Connected(false));
    let notice = editor.updates().pop().unwrap();
    assert_eq!((&notice["sessionUpdate"], &notice["severity"]), (&json!("notice"), &json!("info")));
}

#[test]
fn what_others_do_is_shown_with_their_names() {
    let mut editor = Editor::open(&json!({}));
    editor.said(ben(), "b1", None, Content::Control(Control::Interrupt));
    editor.said(ann(ELSEWHERE), "a1", None, prompt("from my terminal"));
    editor.said(Author::Unknown("not signed by a device of Ann".into()), "x", None, prompt("rm -rf"));
    let texts = editor.texts();
    assert!(texts[0].contains("Ben \\*B\\* interrupted the turn"), "{texts:#?}");
    assert_eq!(texts[1], "from my terminal");
    assert!(texts[2].contains("not signed by a device of Ann") && !texts[2].contains("rm"), "{texts:#?}");
    editor.host(state(Phase::Idle, Mode::Plan));
    let updates = editor.updates();
    assert_eq!(updates[0], json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}));
    assert_eq!(updates[1]["configOptions"][0]["currentValue"], "plan");
    editor.state(Phase::Ended);
    assert!(editor.texts()[0].contains("has ended"));
}

#[test]
fn a_session_that_is_closed_in_its_turn_is_interrupted_before_the_editor_gets_its_answer() {
    for is_sent in [true, false] {
        let mut editor = Editor::open(&json!({}));
        let (request, _) = editor.begins("hang");
        editor.done.clear();
        let close = editor.request("session/close", &json!({"sessionId": SESSION}));
        assert_eq!((editor.answer(request), editor.answer(close)), (None, None), "the server does not have it yet");
        assert!(!editor.done.contains(&Order::Leave(session())));
        if is_sent {
            editor.stored();
            assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");
            assert_eq!(editor.answer(close).unwrap()["result"], json!({}));
        } else {
            editor.core.failed(session(), "c2", "The server cannot be reached.", editor.now);
            editor.collect();
            assert!(editor.answer(request).unwrap()["error"]["message"].as_str().unwrap().contains("may continue"));
            assert_eq!(code(editor.answer(close)), INTERNAL);
        }
        assert!(editor.done.contains(&Order::Leave(session())));
        assert_eq!(editor.sent(), [Content::Control(Control::Interrupt)]);
    }
}

#[test]
fn a_session_that_is_closed_and_opened_again_gets_the_result_of_its_interrupt() {
    let mut editor = Editor::open(&json!({}));
    let (request, _) = editor.begins("hang");
    let close = editor.request("session/close", &json!({"sessionId": SESSION}));
    editor.request("session/load", &json!({"sessionId": SESSION, "cwd": "/", "mcpServers": []}));
    editor.opened(false);
    editor.stored();
    assert_eq!(editor.answer(request).unwrap()["result"]["stopReason"], "cancelled");
    assert_eq!(editor.answer(close).unwrap()["result"], json!({}));
    assert!(!editor.done.contains(&Order::Leave(session())), "it is open");
}

#[test]
fn what_is_cancelled_before_the_machine_has_it_still_owes_an_interrupt() {
    let mut editor = Editor::open(&json!({}));
    editor.prompt("hang");
    assert!(!editor.core.owes_interrupt());
    editor.cancel();
    assert!(editor.core.owes_interrupt());
    let local_id = editor.receipt(ReceiptOutcome::Done, None);
    editor.host(turn(TurnState::Started, Some(&local_id), None));
    assert!(!editor.core.owes_interrupt());
    assert!(editor.sent().contains(&Content::Control(Control::Interrupt)));
}
