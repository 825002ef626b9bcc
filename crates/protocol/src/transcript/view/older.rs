//! Older parts that are loaded later, and what newer messages have said about them.

use std::collections::{HashSet, VecDeque};

use super::item::command;
use super::{Changed, Incoming, Item, Keep, MOST_OPEN, Shown, Taken, View};
use crate::transcript::body::{Receipt, Resolved};
use crate::transcript::words::TurnState;

/// Of each kind.
const MOST: usize = 1_000;

/// What was said about messages that are not shown. It is kept for when they are loaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Unmatched {
    pub(super) resolved: VecDeque<Resolved>,
    pub(super) receipts: VecDeque<Receipt>,
}

impl Unmatched {
    pub(super) fn resolved(&mut self, resolved: Resolved) {
        self.resolved.push_back(resolved);
        if self.resolved.len() > MOST {
            self.resolved.pop_front();
        }
    }

    pub(super) fn receipt(&mut self, receipt: Receipt) {
        self.receipts.push_back(receipt);
        if self.receipts.len() > MOST {
            self.receipts.pop_front();
        }
    }
}

impl View {
    /// Puts the messages before the first one that is shown in front, in `seq` order. The view keeps more from now on. What a later
    /// message has said about them is shown as it is there.
    pub fn older(&mut self, messages: impl IntoIterator<Item = Incoming>) {
        let mut before = Self::new(Keep { items: usize::MAX, bytes: usize::MAX });
        before.lists.checked = self.lists.checked;
        for message in messages {
            before.message(message);
        }
        let mut changed = Changed::default();
        self.named_before(&mut changed, &mut before);
        self.keep.items = self.keep.items.saturating_add(before.items.len());
        self.keep.bytes = self.keep.bytes.saturating_add(before.bytes);
        self.bytes = self.bytes.saturating_add(before.bytes);
        for item in before.items.into_iter().rev() {
            let Some(id) = self.first_id.checked_sub(1) else { return };
            let waits = before.waiting.contains(&item.id);
            if let Some(was) = before.was.remove(&item.id) {
                self.was.insert(id, was);
            }
            let item = Item { id, ..item };
            if waits && matches!(&item.shown, Shown::Prompt(_, Taken::Queued)) {
                self.queued.entry(item.local_id.clone()).or_insert(id);
                self.waiting.insert(id);
            }
            match &item.shown {
                Shown::Tool(call) => drop(self.tools.entry(call.tool_call_id.clone()).or_insert(id)),
                Shown::Card(card) => drop(self.requests.entry(card.request_id.clone()).or_insert(id)),
                _ => {}
            }
            if let Some(command) = command(&item) {
                self.commands.entry(command).or_insert(id);
            }
            self.first_id = id;
            self.items.push_front(item);
        }
        self.state = self.state.take().or(before.state);
        self.plan = self.plan.take().or(before.plan);
        let unmatched = std::mem::take(&mut self.unmatched);
        let room = MOST_OPEN.saturating_sub(self.open.len());
        for card in before.open.into_iter().rev().take(room) {
            self.open.push_front(card);
        }
        for resolved in before.unmatched.resolved.into_iter().chain(unmatched.resolved) {
            self.resolve(&mut changed, resolved);
        }
        for receipt in before.unmatched.receipts.into_iter().chain(unmatched.receipts) {
            self.receipt(&mut changed, receipt);
        }
        self.settle_waiting();
    }

    /// Prompts wait no more whose turn is shown already.
    fn settle_waiting(&mut self) {
        let begun = |item: &Item| match &item.shown {
            Shown::Turn(turn) if turn.state == TurnState::Started => turn.prompt_id.clone(),
            _ => None,
        };
        let begun: HashSet<String> = self.items.iter().filter_map(begun).collect();
        for id in self.waiting.iter().copied().collect::<Vec<_>>() {
            let is_begun = self.item(id).is_some_and(|item| begun.contains(&item.local_id));
            if is_begun {
                self.amend(&mut Changed::default(), id, |shown| {
                    if let Some(taken) = shown.taken_mut() {
                        *taken = Taken::Done;
                    }
                });
            }
            if is_begun {
                self.waiting.remove(&id);
            }
        }
        self.drop_lost();
    }
}
