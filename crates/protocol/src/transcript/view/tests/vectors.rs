//! Cases that the TypeScript client reads, too: `tests/vectors/view.json`.

use serde_json::{Value, json};

use super::*;

fn author(by: &Value) -> Author {
    let user = if by["guest"] == true { UserId::generate() } else { owner() };
    match by["key"].as_str() {
        Some(key) => {
            let removed_in = by["removedIn"].as_u64().map(|version| version.try_into().unwrap());
            Author::Person { user, key: key.to_owned(), removed_in }
        }
        None if by["host"] == true => Author::Host,
        None => Author::Unknown("unknown".to_owned()),
    }
}

fn owner() -> UserId {
    let Author::Person { user, .. } = ann() else { unreachable!() };
    user
}

fn incoming(message: &Value) -> Incoming {
    let mut body = message["content"].clone();
    body["v"] = json!(1);
    body["at"] = json!("2026-01-01T00:00:00.000Z");
    body["list"] = json!({"version": message["list"], "digest": "A".repeat(43)});
    body["localId"] = message["localId"].clone();
    if let Some(n) = message.get("n") {
        body["n"] = n.clone();
    }
    let seq = message["seq"].as_u64().unwrap();
    Incoming { seq, author: author(&message["by"]), digest: String::new(), message: Message::read(&body.to_string()) }
}

fn taken(taken: &Taken) -> &'static str {
    match taken {
        Taken::NotYet => "not_yet",
        Taken::Queued => "queued",
        Taken::Done => "done",
        Taken::Rejected { .. } => "rejected",
    }
}

fn said(item: &Item) -> String {
    let shown = said_of(&item.shown);
    item.unconfirmed.map_or(shown.clone(), |list| format!("{shown}, not confirmed by {list}"))
}

fn said_of(shown: &Shown) -> String {
    match shown {
        Shown::Prompt(prompt, is) => format!("prompt {} {}", prompt.text, taken(is)),
        Shown::Answer(_, is) => format!("answer {}", taken(is)),
        Shown::Control(_, is) => format!("control {}", taken(is)),
        Shown::Turn(turn) => format!("turn {}", turn.state.as_str()),
        Shown::Text(part) => format!("text {}", part.text),
        Shown::Thought(part) => format!("thought {}", part.text),
        Shown::Tool(call) => {
            let status = call.status.as_ref().map_or("", |status| status.as_str());
            format!("tool {} {status}", call.title.as_deref().unwrap_or_default())
        }
        Shown::Card(card) => {
            let outcome = card.resolved.as_ref().map_or("open", |resolved| resolved.outcome.as_str());
            format!("card {} {outcome}", card.request_id)
        }
        Shown::Error(failure) => format!("error {}", failure.code.as_str()),
        Shown::Note(note) => match note {
            Note::NotSigned(_) => "not signed".to_owned(),
            Note::Removed(_, text) => format!("removed {text}"),
            Note::Missing { from, to } => format!("missing {from}-{to}"),
            Note::Repeated(n) => format!("repeated {n}"),
            Note::RepeatedCommand(id) => format!("command again {id}"),
            Note::Unreadable(_) => "unreadable".to_owned(),
        },
        Shown::Moved => "moved".to_owned(),
        Shown::Newer(name) => format!("newer {name}"),
    }
}

#[test]
fn what_a_view_shows_is_what_the_vectors_say() {
    let vectors: Value = serde_json::from_str(include_str!("../../../../../../tests/vectors/view.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 35);
    for case in cases {
        let mut view = View::default();
        for step in case["steps"].as_array().unwrap() {
            for message in step["messages"].as_array().into_iter().flatten() {
                view.message(incoming(message));
            }
            if let Some(older) = step["older"].as_array() {
                view.older(older.iter().map(incoming));
            }
            if let Some(checked) = step.get("checked") {
                let removed = serde_json::from_value(checked["removed"].clone()).unwrap();
                view.checked(owner(), checked["list"].as_u64().unwrap().try_into().unwrap(), &removed);
            }
        }
        let shown: Vec<String> = view.items().map(said).collect();
        let open: Vec<&str> = view.open().map(|card| card.request_id.as_str()).collect();
        assert_eq!(
            json!({"items": shown, "open": open, "withheld": view.withheld()}),
            json!({"items": case["items"], "open": case["open"], "withheld": case["withheld"]}),
            "{}",
            case["name"]
        );
    }
}
