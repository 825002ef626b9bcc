//! The calls in the vectors. The page answers them in the same way (`web/tests/unit/voice.test.mjs`).

use ensemble_protocol::transcript::words::OptionKind;
use ensemble_screen::Level;
use ensemble_types::ids::SessionId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AGENT, Talked, code};
use crate::rules::{Act, Caller};

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    level: String,
    asks: Vec<Asks>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Asks {
    Permission { permission: String, kinds: Vec<String> },
    Question { question: String, text: String },
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Step {
    wait: u64,
    sent: bool,
    end: bool,
    call: Option<String>,
    by: Option<String>,
    is_agent: bool,
    body: Map<String, Value>,
    raw: Option<Value>,
    other: bool,
    code: u16,
    act: Option<Value>,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            wait: 0,
            sent: false,
            end: false,
            call: None,
            by: None,
            is_agent: true,
            body: Map::new(),
            raw: None,
            other: false,
            code: 0,
            act: None,
        }
    }
}

/// A value, or a repeated text.
fn spread(value: &Value) -> Value {
    match value.get("repeat") {
        Some(parts) => parts[0].as_str().unwrap().repeat(usize::try_from(parts[1].as_u64().unwrap()).unwrap()).into(),
        None => value.clone(),
    }
}

fn described(act: Act) -> Value {
    match act {
        Act::Send(text) => json!({ "send": text }),
        Act::Read { last } => json!({ "read": last }),
        Act::Deny { request_id, option_id, .. } => json!({ "deny": request_id, "option": option_id }),
        Act::Show { request_id, title } => json!({ "show": request_id, "title": title }),
    }
}

fn take(talked: &mut Talked, step: &Step, place: &str) {
    talked.wait(step.wait);
    if step.sent {
        talked.rules.sent();
    }
    if step.end {
        talked.rules.end();
    }
    let Some(method) = &step.call else { return };
    let mut body: Map<String, Value> = step.body.iter().map(|(name, value)| (name.clone(), spread(value))).collect();
    let session = if step.other { SessionId::generate() } else { talked.id };
    body.insert("sessionId".to_owned(), session.to_string().into());
    let raw = step.raw.as_ref().map(|raw| spread(raw).as_str().unwrap().to_owned());
    let payload = raw.unwrap_or_else(|| Value::Object(body).to_string());
    let identity = step.by.as_deref().unwrap_or(AGENT);
    let answer = talked.call_by(Caller { identity, is_agent: step.is_agent }, method, &payload);
    assert_eq!(code(&answer), step.code, "{place}");
    if let Some(expected) = &step.act {
        assert_eq!(described(answer.unwrap()), *expected, "{place}");
    }
}

#[test]
fn calls_of_the_vectors_end_as_they_say() {
    let vectors: Vectors = serde_json::from_str(include_str!("../../../../tests/vectors/voice.json")).unwrap();
    assert!(vectors.cases.len() > 10);
    for case in &vectors.cases {
        let mut talked = Talked::new();
        talked.level = match case.level.as_str() {
            "read" => Level::Read,
            "prompt" => Level::Prompt,
            "approve" => Level::Approve,
            _ => Level::Owner,
        };
        for asks in &case.asks {
            match asks {
                Asks::Permission { permission, kinds } => {
                    let kinds: Vec<OptionKind> = kinds.iter().map(|kind| OptionKind::of(kind)).collect();
                    talked.asks(permission, &kinds);
                }
                Asks::Question { question, text } => talked.questions(question, text),
            }
        }
        for (number, step) in case.steps.iter().enumerate() {
            take(&mut talked, step, &format!("{}, step {number}", case.name));
        }
    }
}

#[test]
fn a_request_that_could_not_be_denied_can_be_denied_again() {
    let mut talked = Talked::new();
    talked.asks("r", &[OptionKind::RejectOnce]);
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 0);
    talked.rules.not_denied("r");
    assert_eq!(code(&talked.wants("permission.deny", json!({ "requestId": "r" }))), 0);
}

#[test]
fn an_id_has_one_form() {
    let mut talked = Talked::new();
    let upper = json!({ "sessionId": talked.id.to_string().to_uppercase() }).to_string();
    assert_eq!(code(&talked.calls("session.read", &upper)), 409);
}
