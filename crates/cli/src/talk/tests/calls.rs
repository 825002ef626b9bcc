//! The codes of the contract, one after the other, and what is left when none applies.

use ensemble_protocol::transcript::words::OptionKind;
use ensemble_screen::Level;
use ensemble_types::ids::SessionId;
use serde_json::json;

use super::{AGENT, Talked, code};
use crate::talk::rules::{Act, Caller, MOST_BYTES};

const BOTH: [OptionKind; 3] = [OptionKind::AllowOnce, OptionKind::RejectAlways, OptionKind::RejectOnce];

#[test]
fn code_400_is_a_request_that_is_not_of_the_schema() {
    let mut talked = Talked::new();
    let id = talked.id.to_string();
    for (method, payload) in [
        ("session.read", "no json".to_owned()),
        ("session.read", "[]".to_owned()),
        ("session.read", json!({}).to_string()),
        ("session.read", json!({ "sessionId": 7 }).to_string()),
        ("session.read", json!({ "sessionId": id, "last": 0 }).to_string()),
        ("session.read", json!({ "sessionId": id, "last": 21 }).to_string()),
        ("session.read", json!({ "sessionId": id, "last": 1.5 }).to_string()),
        ("session.read", json!({ "sessionId": id, "last": null }).to_string()),
        ("session.read", json!({ "sessionId": id, "text": "x" }).to_string()),
        ("session.send", json!({ "sessionId": id }).to_string()),
        ("session.send", json!({ "sessionId": id, "text": " \n" }).to_string()),
        ("session.send", json!({ "sessionId": id, "text": ["x"] }).to_string()),
        ("session.send", json!({ "sessionId": id, "text": "x", "now": true }).to_string()),
        ("permission.deny", json!({ "sessionId": id }).to_string()),
        ("permission.deny", json!({ "sessionId": id, "requestId": "" }).to_string()),
        ("permission.deny", json!({ "sessionId": id, "requestId": "r".repeat(129) }).to_string()),
        ("permission.show", json!({ "sessionId": id, "requestId": null }).to_string()),
        ("permission.allow", json!({ "sessionId": id, "requestId": "r" }).to_string()),
    ] {
        talked.wait(60);
        assert_eq!(code(&talked.calls(method, &payload)), 400, "{method} {payload}");
    }
}

#[test]
fn code_403_is_another_caller_or_another_time() {
    let mut talked = Talked::new();
    let payload = json!({ "sessionId": talked.id }).to_string();
    for (identity, is_agent) in [("somebody", true), (AGENT, false), ("", false)] {
        let caller = Caller { identity, is_agent };
        assert_eq!(code(&talked.call_by(caller, "session.read", &payload)), 403, "{identity} {is_agent}");
    }
    assert_eq!(code(&talked.calls("session.read", &payload)), 0);
    talked.rules.end();
    assert_eq!(code(&talked.calls("session.read", &payload)), 403, "the conversation is over");
}

#[test]
fn code_403_is_a_person_who_may_not() {
    let mut talked = Talked::new();
    talked.asks("r", &BOTH);
    talked.level = Level::Read;
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "x" }))), 403);
    talked.level = Level::Prompt;
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 403);
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "x" }))), 0);
}

#[test]
fn code_404_is_a_request_that_is_not_open() {
    let mut talked = Talked::new();
    assert_eq!(code(&talked.wants("permission.show", json!({}))), 404, "nothing is asked");
    talked.questions("q");
    for method in ["permission.deny", "permission.show"] {
        assert_eq!(code(&talked.wants(method, json!({ "requestId": "r" }))), 404, "{method}");
    }
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "q" }))), 404, "a question is not denied");
    talked.asks("r", &BOTH);
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 0);
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 404, "it is denied once");
    talked.rules.not_denied("r");
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 0, "it could not be sent");
}

#[test]
fn code_409_is_another_session_a_message_that_is_shown_or_nothing_that_denies() {
    let mut talked = Talked::new();
    let other = json!({ "sessionId": SessionId::generate() }).to_string();
    assert_eq!(code(&talked.calls("session.read", &other)), 409);
    let upper = json!({ "sessionId": talked.id.to_string().to_uppercase() }).to_string();
    assert_eq!(code(&talked.calls("session.read", &upper)), 409, "an id has one form");
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "first" }))), 0);
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "second" }))), 409);
    talked.rules.sent();
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "second" }))), 0);
    talked.asks("r", &[OptionKind::AllowOnce]);
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 409);
}

#[test]
fn code_413_is_what_is_too_large() {
    let mut talked = Talked::new();
    let longest = "ä".repeat(7_500);
    assert_eq!(talked.wants("session.send", json!({ "text": longest })), Ok(Act::Send(longest.clone())));
    talked.rules.sent();
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "a".repeat(8_001) }))), 413);
    assert_eq!(code(&talked.wants("session.send", json!({ "text": "a".repeat(8_000) }))), 0);
    assert_eq!(code(&talked.calls("session.read", &" ".repeat(MOST_BYTES + 1))), 413);
    assert_eq!(code(&talked.calls("session.read", &" ".repeat(MOST_BYTES))), 400);
}

#[test]
fn code_429_is_the_eleventh_call_in_a_minute_and_refused_ones_count() {
    let mut talked = Talked::new();
    for _ in 0..5 {
        assert_eq!(code(&talked.wants("session.read", json!({}))), 0);
        assert_eq!(code(&talked.calls("session.read", "{}")), 400);
    }
    talked.wait(59);
    assert_eq!(code(&talked.wants("session.read", json!({}))), 429);
    talked.wait(1);
    assert_eq!(
        code(&talked.wants("session.read", json!({}))),
        0,
        "what is beyond the limit does not make the minute longer"
    );
    // Those of others take nothing away.
    let payload = json!({ "sessionId": talked.id }).to_string();
    for _ in 0..20 {
        talked.call_by(Caller { identity: "somebody", is_agent: true }, "session.read", &payload).unwrap_err();
    }
    assert_eq!(code(&talked.wants("session.read", json!({}))), 0);
}

#[test]
fn what_may_be_done_is_what_was_asked_for() {
    let mut talked = Talked::new();
    talked.questions("q");
    talked.asks("r", &BOTH);
    assert_eq!(talked.wants("session.read", json!({})), Ok(Act::Read { last: 5 }));
    assert_eq!(talked.wants("session.read", json!({ "last": 20 })), Ok(Act::Read { last: 20 }));
    let text = "Run the tests.".to_owned();
    assert_eq!(talked.wants("session.send", json!({ "text": text })), Ok(Act::Send(text)));
    let shown =
        |request_id: &str, title: &str| Act::Show { request_id: request_id.to_owned(), title: title.to_owned() };
    assert_eq!(talked.wants("permission.show", json!({})), Ok(shown("q", "Which colour?")), "the oldest");
    assert_eq!(talked.wants("permission.show", json!({ "requestId": "r" })), Ok(shown("r", "Run r")));
    let denied = talked.wants("permission.deny", json!({ "requestId": "r" })).unwrap();
    let Act::Deny { request_id, digest, option_id, title } = denied else { panic!("{denied:?}") };
    assert_eq!(
        [request_id, digest, option_id, title],
        ["r", "digest-2", "id-reject_once", "Run r"],
        "once, not always"
    );
}

#[test]
fn a_request_is_denied_for_longer_only_where_it_cannot_be_denied_once() {
    let mut talked = Talked::new();
    talked.asks("r", &[OptionKind::AllowAlways, OptionKind::RejectAlways]);
    let denied = talked.wants("permission.deny", json!({ "requestId": "r" }));
    assert!(matches!(denied, Ok(Act::Deny { option_id, .. }) if option_id == "id-reject_always"));
}
