//! What a transcript keeps of the programs' output.

use ensemble_types::runs::Provider;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::provider::read_line;

#[test]
fn a_summary_is_truncated_between_characters() {
    let mut transcript = Transcript::new();
    let smile = "😀".repeat(SUMMARY_BYTES);
    transcript.message_delta(&smile);
    transcript.message_delta("more");
    let answer = transcript.answer().unwrap();
    assert!(answer.len() <= SUMMARY_BYTES && answer.len() > SUMMARY_BYTES - 8 && answer.ends_with("😀…"));
}

#[test]
fn deltas_are_joined_and_notes_get_their_own_lines() {
    let mut transcript = Transcript::new();
    for line in [
        r#"{"type":"message","role":"assistant","content":"one ","delta":true}"#,
        r#"{"type":"message","role":"assistant","content":"two","delta":true}"#,
        r#"{"type":"tool_use","tool_name":"shell","parameters":{"command":"ls\n-l"}}"#,
        "not JSON",
        r#"{"type":"message","role":"assistant","content":"three\u0000","delta":true}"#,
        r#"{"type":"result","status":"success","stats":{"input_tokens":3,"output_tokens":4}}"#,
    ] {
        read_line(Provider::Gemini, line, &mut transcript);
    }
    assert_eq!(transcript.take_text(), "one two\n[shell] ls -l\nnot JSON\nthree\u{fffd}\n");
    assert_eq!(transcript.take_text(), "");
    assert_eq!(transcript.usage().unwrap().output_tokens, Some(4));
    assert_eq!(transcript.ended(), Some(&Ended::Success));
}

proptest! {
    #[test]
    fn any_output_can_be_read(lines in proptest::collection::vec(printed(), 0..30)) {
        for provider in Provider::ALL {
            let mut transcript = Transcript::new();
            for line in &lines {
                read_line(provider, line, &mut transcript);
            }
            let text = transcript.take_text();
            prop_assert!(!text.contains('\0') && (text.is_empty() || transcript.at_line_start == text.ends_with('\n')));
            prop_assert!(transcript.answer().is_none_or(|answer| answer.len() <= SUMMARY_BYTES));
        }
    }
}

/// Lines with the words of the programs in places where the programs do not use them.
fn printed() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(vec![
        "type",
        "subtype",
        "result",
        "assistant",
        "message",
        "content",
        "text",
        "item",
        "item.completed",
        "agent_message",
        "error",
        "turn.failed",
        "usage",
        "input_tokens",
        "session_id",
        "is_error",
        "success",
        "stats",
        "status",
        "init",
        "system",
        "role",
        "😀\0",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    let value = leaf.prop_recursive(3, 12, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec((word.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    });
    prop_oneof![3 => value.prop_map(|value| value.to_string()), 1 => any::<String>()]
}

#[test]
fn an_error_item_of_codex_does_not_end_the_turn() {
    let mut transcript = Transcript::new();
    for line in [
        r#"{"type":"thread.started","thread_id":"t-1"}"#,
        r#"{"type":"item.completed","item":{"type":"error","message":"no metadata"}}"#,
        r#"{"type":"error","message":"Reconnecting... 1/5"}"#,
        r#"{"type":"item.completed","item":{"type":"agent_message","text":"done"}}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":5}}"#,
    ] {
        read_line(Provider::Codex, line, &mut transcript);
    }
    assert_eq!(transcript.ended(), Some(&Ended::Success));
    assert_eq!(transcript.session_id(), Some("t-1"));
    assert_eq!(transcript.answer().as_deref(), Some("done"));
}
