//! docs/transcript.schema.json says what this code reads and writes.

use std::collections::BTreeSet;
use std::path::Path;

use boon::{Compiler, Schemas};
use ensemble_protocol::transcript::words::*;
use ensemble_protocol::transcript::{Content, Message};
use serde_json::{Value, json};

use crate::samples;

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcript.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Says how a body differs from the schema.
fn validator() -> impl Fn(&Value) -> Result<(), String> {
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    compiler.add_resource("transcript.json", schema()).unwrap();
    let index = compiler.compile("transcript.json", &mut schemas).unwrap();
    move |body| schemas.validate(body, index).map_err(|error| error.to_string())
}

fn bodies() -> Vec<Value> {
    samples::messages().iter().map(|message| serde_json::from_str(&message.write().unwrap()).unwrap()).collect()
}

#[test]
fn every_message_that_is_written_fits_the_schema_and_is_read_again() {
    let validator = validator();
    let mut types = BTreeSet::new();
    for message in samples::messages() {
        let body = message.write().unwrap();
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(validator(&value), Ok(()), "{body}");
        assert_eq!(Message::read(&body), Ok(message.clone()));
        types.insert(message.content.type_name().to_owned());
    }
    let named = schema()["allOf"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|rule| rule["if"]["properties"]["type"]["const"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(types, named, "there is a sample of every type in the schema");
}

#[test]
fn the_words_of_the_schema_are_those_of_the_code() {
    let schema = schema();
    let all: [(&str, &[&str]); 16] = [
        ("When", When::KNOWN),
        ("TurnState", TurnState::KNOWN),
        ("Cause", Cause::KNOWN),
        ("StopReason", StopReason::KNOWN),
        ("ToolKind", ToolKind::KNOWN),
        ("ToolStatus", ToolStatus::KNOWN),
        ("OptionKind", OptionKind::KNOWN),
        ("PlanStatus", PlanStatus::KNOWN),
        ("PlanPriority", PlanPriority::KNOWN),
        ("Outcome", Outcome::KNOWN),
        ("ReceiptOutcome", ReceiptOutcome::KNOWN),
        ("ReceiptCode", ReceiptCode::KNOWN),
        ("Mode", Mode::KNOWN),
        ("Phase", Phase::KNOWN),
        ("May", May::KNOWN),
        ("ErrorCode", ErrorCode::KNOWN),
    ];
    for (name, words) in all {
        assert_eq!(schema["$defs"][name]["enum"], json!(words), "{name}");
    }
}

/// Every field that is written is in the schema, and what the schema requires is what a reader needs.
#[test]
fn a_field_that_is_required_is_missed_by_both_and_an_optional_one_by_none() {
    let validator = validator();
    for body in bodies() {
        for field in body.as_object().unwrap().keys() {
            let mut without = body.clone();
            without.as_object_mut().unwrap().remove(field);
            // Without its count a host's message is read, and then shown as a note.
            if field == "n" || field == "v" || field == "type" {
                continue;
            }
            let read = Message::read(&without.to_string());
            assert_eq!(validator(&without).is_ok(), read.is_ok(), "without {field}: {body}");
        }
    }
}

#[test]
fn a_field_of_another_type_is_refused_by_both() {
    let validator = validator();
    for body in bodies() {
        for field in body.as_object().unwrap().keys().filter(|field| *field != "v" && *field != "value") {
            let mut wrong = body.clone();
            wrong[field] = json!([[true]]);
            assert!(validator(&wrong).is_err(), "{field}: {body}");
            assert!(Message::read(&wrong.to_string()).is_err(), "{field}: {body}");
        }
    }
}

#[test]
fn a_grant_says_when_the_share_is_gone() {
    let validator = validator();
    let is_access = |body: &Value| body["action"] == "access";
    let mut body = bodies().into_iter().find(is_access).unwrap();
    assert_eq!(body["value"].get("removed"), None, "it is not written where it is not so");
    for (removed, is_good) in [(json!(true), true), (json!("yes"), false)] {
        body["value"]["removed"] = removed;
        assert_eq!((validator(&body).is_ok(), Message::read(&body.to_string()).is_ok()), (is_good, is_good));
        let Ok(read) = Message::read(&body.to_string()) else { continue };
        assert_eq!(serde_json::from_str::<Value>(&read.write().unwrap()).unwrap(), body);
        for (epoch, is_good) in [(json!(7), true), (json!(-1), false), (json!("7"), false)] {
            body["value"]["keyEpoch"] = epoch;
            assert_eq!((validator(&body).is_ok(), Message::read(&body.to_string()).is_ok()), (is_good, is_good));
        }
    }
}

#[test]
fn what_is_newer_is_no_error() {
    let validator = validator();
    for body in bodies() {
        let mut with_more = body.clone();
        with_more["later"] = json!({"a": [1]});
        assert!(validator(&with_more).is_ok() && Message::read(&with_more.to_string()).is_ok(), "{body}");
        let mut other = body.clone();
        other["type"] = json!("hologram");
        assert!(validator(&other).is_ok());
        let read = Message::read(&other.to_string()).unwrap();
        assert_eq!(read.content, Content::Newer("hologram".into()));
        other["v"] = json!(2);
        assert!(matches!(Message::read(&other.to_string()).unwrap().content, Content::Newer(_)));
    }
    // A word that is newer is kept as it is.
    let mut body = bodies().remove(2);
    body["cause"] = json!("wind");
    let read = Message::read(&body.to_string()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&read.write().unwrap()).unwrap(), body);
}
