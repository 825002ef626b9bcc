//! Follows a turn that has run while no client was connected. What was missed of it is listed before anything new.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_protocol::transcript::body::Usage;
use ensemble_protocol::transcript::words::{Cause, ErrorCode, StopReason};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, Codex};
use crate::command::Checkpoint;
use crate::json::{list, some, text};
use crate::texts::Texts;
use crate::tools::Tools;

/// The number of turns that are searched for the one that ran on.
const TURNS: u32 = 8;
/// The messages that wait until the list is read. With more, what is missing of the list stays unsaid.
const MOST_HELD: usize = 4_096;
/// The items of a turn that are remembered. A longer turn is not left to itself.
const MOST_ITEMS: usize = 16_384;

/// What was said of the turn that runs.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    turn: String,
    done: BTreeSet<String>,
    texts: Texts,
    tools: Tools,
    changes: BTreeMap<String, Value>,
    children: BTreeSet<String>,
    total: Option<Usage>,
    before: Option<Usage>,
    model: Option<String>,
}

/// A turn that is being followed.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// What the list of turns says of it.
    turn: Value,
    /// What came meanwhile.
    held: Vec<Value>,
    /// Items that the list has shown to be complete.
    listed: BTreeSet<String>,
    is_listed: bool,
    /// Items whose beginning was seen. The text of another one is said when it is complete, since its first part is not known.
    started: BTreeSet<String>,
}

impl Codex {
    /// What another driver needs to continue the turn.
    pub(super) fn said_so_far(&self) -> Option<Checkpoint> {
        let turn = self.turn.clone().filter(|_| self.core.turn.is_some())?;
        let is_settled = self.calls.is_empty() && self.following.as_ref().is_none_or(|following| following.is_listed);
        if !is_settled || self.done.len() >= MOST_ITEMS {
            return None;
        }
        let (texts, tools) = (self.core.texts.clone(), self.core.tools.clone());
        let (done, changes, children) = (self.done.clone(), self.changes.clone(), self.children.clone());
        let (total, before, model) = (self.total, self.before, self.model.clone());
        let said = Said { turn, done, texts, tools, changes, children, total, before, model };
        serde_json::to_value(said).ok().map(Checkpoint)
    }

    /// Takes up what another driver has said of the turn.
    pub(super) fn follow(&mut self, checkpoint: Checkpoint) {
        let Ok(said) = serde_json::from_value::<Said>(checkpoint.0) else { return };
        (self.core.texts, self.core.tools) = (said.texts, said.tools);
        (self.done, self.changes, self.children) = (said.done, said.changes, said.children);
        (self.total, self.before, self.model) = (said.total, said.before, said.model);
        self.turn = Some(said.turn);
        self.core.turn = Some(Cause::Prompt);
        self.following = Some(Following::default());
    }

    /// Asks for the state of the turn.
    pub(super) fn catch_up(&mut self, thread: &str) {
        if self.following.is_some() {
            let params = json!({"threadId": thread, "limit": TURNS, "itemsView": "notLoaded"});
            self.call(Call::Turns, "thread/turns/list", params);
        }
    }

    pub(super) fn turns_listed(&mut self, result: &Value) {
        let found = list(result, "/data").find(|turn| some(turn, "/id") == self.turn.as_deref()).cloned();
        let Some(following) = &mut self.following else { return };
        match found {
            Some(turn) => {
                following.turn = turn;
                self.list_items(None);
            }
            None => self.lost_the_turn("The agent does not know the turn any more that it worked on."),
        }
    }

    fn list_items(&mut self, cursor: Option<&str>) {
        let mut params = json!({"threadId": self.thread, "turnId": self.turn});
        if let (Some(fields), Some(cursor)) = (params.as_object_mut(), cursor) {
            fields.insert("cursor".to_owned(), json!(cursor));
        }
        self.call(Call::Items, "thread/items/list", params);
    }

    pub(super) fn items_listed(&mut self, result: &Value) {
        for entry in list(result, "/data") {
            let item = entry.get("item").unwrap_or(&Value::Null);
            let (id, is_complete) = (text(item, "/id"), text(item, "/status") != "inProgress");
            if !self.done.contains(id) {
                self.item(item, is_complete);
            }
            if let Some(following) = self.following.as_mut().filter(|_| is_complete) {
                following.listed.insert(id.to_owned());
            }
        }
        match some(result, "/nextCursor") {
            Some(cursor) if self.following.as_ref().is_some_and(|following| !following.is_listed) => {
                self.list_items(Some(cursor));
            }
            _ => self.caught_up(),
        }
    }

    pub(super) fn items_not_listed(&mut self, why: &str) {
        let text = format!("The agent does not say what it has done while no program was connected: {why}");
        self.core.fail(ErrorCode::Unknown, &text, None);
        self.caught_up();
    }

    /// All that is missing was said: from here on the turn is like any other.
    fn caught_up(&mut self) {
        let Some(following) = self.following.as_mut().filter(|following| !following.is_listed) else { return };
        following.is_listed = true;
        let (turn, held) = (following.turn.take(), std::mem::take(&mut following.held));
        let listed = std::mem::take(&mut following.listed);
        let is_said = |message: &Value| {
            text(message, "/method") == "item/completed" && listed.contains(text(message, "/params/item/id"))
        };
        if !matches!(text(&turn, "/status"), "" | "inProgress") {
            self.completed(&json!({"turn": turn}));
        }
        held.iter().filter(|message| !is_said(message)).for_each(|message| self.read(message));
    }

    /// The turn is given up.
    pub(super) fn lost_the_turn(&mut self, why: &str) {
        self.turn = None;
        self.core.fail(ErrorCode::Unknown, why, None);
        self.core.end_turn(StopReason::Error, None, None);
        self.caught_up();
    }

    /// Keeps what comes before the list is read. False: it is to be read now.
    pub(super) fn holds(&mut self, message: &Value) -> bool {
        let Some(following) = self.following.as_mut().filter(|following| !following.is_listed) else { return false };
        if following.held.len() >= MOST_HELD {
            self.core.note("The agent says more than is kept while the list of a turn is read.");
            self.caught_up();
            return false;
        }
        following.held.push(message.clone());
        true
    }

    /// The item has begun.
    pub(super) fn has_begun(&mut self, item: &str) {
        if let Some(following) = self.following.as_mut().filter(|following| following.is_listed) {
            following.started.insert(item.to_owned());
        }
    }

    /// Whether the text of the item is known from its beginning.
    pub(super) fn is_whole(&self, item: &str) -> bool {
        self.following.as_ref().is_none_or(|following| following.started.contains(item))
    }
}
