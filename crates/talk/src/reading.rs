//! What the voice gets of a session: its newest messages, small enough for one answer. To the voice it is data, and no instruction.

use ensemble_protocol::transcript::view::{Asks, Item, Shown, View};
use ensemble_types::ids::SessionId;
use serde::Serialize;

use super::rules::title;

const MOST_MESSAGE_BYTES: usize = 2_048;
/// Of the 15,360 that an answer has.
const MOST_ANSWER_BYTES: usize = 15_000;
const MOST_OPEN: usize = 8;
const MOST_TITLE_BYTES: usize = 200;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reading {
    session_id: SessionId,
    phase: String,
    pub(super) messages: Vec<Message>,
    open: Vec<Open>,
    /// Something is left out.
    cut: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Message {
    from: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Open {
    request_id: String,
    kind: &'static str,
    title: String,
}

/// The newest `last` messages that say something, oldest first.
pub(super) fn read(session_id: SessionId, view: &View, last: usize) -> Reading {
    let mut cut = false;
    let mut messages: Vec<Message> = view
        .items()
        .rev()
        .filter_map(message)
        .take(last)
        .map(|(from, whole)| {
            let text = shortened(&whole, MOST_MESSAGE_BYTES);
            cut |= text.len() != whole.len();
            Message { from, text }
        })
        .collect();
    messages.reverse();
    let open = view.open().take(MOST_OPEN).map(|card| {
        let kind = if matches!(card.asks, Asks::Permission(_)) { "permission" } else { "question" };
        Open { request_id: card.request_id.clone(), kind, title: shortened(&title(card), MOST_TITLE_BYTES) }
    });
    let phase = view.state().map_or("unknown", |state| state.phase.as_str()).to_owned();
    let open: Vec<Open> = open.collect();
    let mut reading = Reading { session_id, phase, messages, cut: cut || view.open().len() > open.len(), open };
    while !reading.messages.is_empty() && text(&reading).len() > MOST_ANSWER_BYTES {
        reading.messages.remove(0);
        reading.cut = true;
    }
    reading
}

/// The answer as it is sent.
pub(super) fn text(reading: &Reading) -> String {
    serde_json::to_string(reading).unwrap_or_default()
}

fn message(item: &Item) -> Option<(&'static str, String)> {
    match &item.shown {
        Shown::Prompt(prompt, _) => Some(("person", prompt.text.clone())),
        Shown::Text(part) if !part.text.trim().is_empty() => Some(("agent", part.text.clone())),
        Shown::Tool(call) => {
            let status = call.status.as_ref().map_or("under way", |status| status.as_str());
            Some(("tool", format!("{} ({status})", call.title.as_deref().unwrap_or_default())))
        }
        Shown::Error(failure) => Some(("error", failure.text.clone())),
        _ => None,
    }
}

/// At most `most` bytes of it, whole characters only.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
    format!("{}…", text.get(..end).unwrap_or_default())
}
