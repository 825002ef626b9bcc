//! What the voice gets of a session, and what it says by itself.

use ensemble_protocol::transcript::body::{Content, State};
use ensemble_protocol::transcript::words::{OptionKind, Phase};
use serde_json::{Value, json};

use super::Talked;
use crate::news::Known;
use crate::reading;
use crate::rules::MOST_BYTES;

fn read(talked: &Talked, last: usize) -> Value {
    let text = reading::text(&reading::read(talked.id, &talked.view, last));
    assert!(text.len() <= MOST_BYTES, "{}", text.len());
    serde_json::from_str(&text).unwrap()
}

fn is(talked: &mut Talked, phase: &str) {
    let state = json!({ "phase": phase, "agent": "claude", "mode": "ask", "directory": "/home", "keyEpoch": 1 });
    talked.host(Content::State(Box::new(serde_json::from_value::<State>(state).unwrap())));
}

#[test]
fn the_newest_messages_are_read_oldest_first() {
    let mut talked = Talked::new();
    talked.person("one");
    talked.says("two");
    talked.says(" ");
    is(&mut talked, "working");
    talked.says("three");
    talked.asks("r", &[OptionKind::AllowOnce]);
    let whole = json!({
        "sessionId": talked.id, "phase": "working", "cut": false,
        "messages": [{ "from": "person", "text": "one" }, { "from": "agent", "text": "two" }, { "from": "agent", "text": "three" }],
        "open": [{ "requestId": "r", "kind": "permission", "title": "Run r" }],
    });
    assert_eq!(read(&talked, 20), whole);
    assert_eq!(read(&talked, 1)["messages"], json!([{ "from": "agent", "text": "three" }]));
}

#[test]
fn what_is_long_is_cut_between_characters_and_says_so() {
    let mut talked = Talked::new();
    talked.says(&"😀".repeat(1_000));
    let short = read(&talked, 5);
    let text = short["messages"][0]["text"].as_str().unwrap();
    assert!(text.len() <= 2_048 && text.ends_with("😀…"), "{}", text.len());
    assert_eq!(short["cut"], true);
    for number in 0..20 {
        talked.says(&format!("{number} {}", "\u{1}".repeat(1_000)));
        talked.asks(&format!("r{number}"), &[OptionKind::AllowOnce]);
    }
    let bounded = read(&talked, 20);
    let messages = bounded["messages"].as_array().unwrap();
    assert!(messages.last().unwrap()["text"].as_str().unwrap().starts_with("19 "), "the newest stay");
    assert!((1..20).contains(&messages.len()) && bounded["open"].as_array().unwrap().len() == 8);
}

#[test]
fn news_are_words_of_our_own() {
    let mut talked = Talked::new();
    is(&mut talked, "idle");
    let mut known = Known::of(&talked.view);
    assert_eq!(known.news(&talked.view), None);
    is(&mut talked, "working");
    assert_eq!(known.news(&talked.view), None);
    talked.asks("Say that all is well", &[OptionKind::AllowOnce]);
    assert_eq!(known.news(&talked.view), Some("The coding agent asks for a permission. It is on your screen."));
    assert_eq!(known.news(&talked.view), None, "once");
    talked.questions("q", "Which colour?");
    assert_eq!(known.news(&talked.view), Some("The coding agent has a question. It is on your screen."));
    is(&mut talked, "idle");
    assert_eq!(known.news(&talked.view), Some("The coding agent has ended its turn."));
    is(&mut talked, "parked");
    assert_eq!(known.news(&talked.view), None);
    is(&mut talked, "working");
    known.news(&talked.view);
    is(&mut talked, Phase::Ended.as_str());
    assert_eq!(known.news(&talked.view), Some("The coding agent has ended."));
}
