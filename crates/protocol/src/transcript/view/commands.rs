//! The commands of people. What a device writes after the machine's first message that names a list without its key is not a command.

use std::collections::{BTreeSet, HashMap};

use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::item::command;
use super::{Author, Changed, Item, Note, Shown, Taken, View};
use crate::transcript::body::{Content, Message};

/// The versions of the owner's list that the machine has named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lists {
    newest: u32,
    /// The owner, and the version of their list by which the caller finds authors. `None`: the caller reads no lists.
    pub(super) checked: Option<(UserId, u32)>,
    /// The machine's first message. `None`: there is none.
    first: Option<First>,
}

#[derive(Clone, Copy, Debug)]
struct First {
    seq: u64,
    n: u64,
    /// The list by which commands before it are judged. 0: by none.
    list: u32,
}

/// What a command was before the next message of the machine has judged it. One before it, in an older part, may judge otherwise.
#[derive(Clone, Debug)]
pub(super) struct Was {
    local_id: String,
    at: Option<Timestamp>,
    pub(super) shown: Shown,
}

impl Lists {
    /// The list that was named, if the caller lacks it and it decides whether this device of the owner still counts.
    fn unconfirmed(&self, author: &Author, named: u32) -> Option<u32> {
        let (owner, known) = self.checked?;
        let is_owners = matches!(author, Author::Person { user, removed_in: None, .. } if *user == owner);
        (is_owners && named > known).then_some(named)
    }
}

impl View {
    /// The newest list that the machine has named, if the caller lacks it.
    pub fn withheld(&self) -> Option<u32> {
        let (_, known) = self.lists.checked?;
        Some(self.lists.newest).filter(|named| *named > known)
    }

    /// The version of the owner's list by which the caller finds authors, as it has said last.
    pub fn list(&self) -> Option<u32> {
        self.lists.checked.map(|(_, version)| version)
    }

    /// The keys of which it is not known whether the list that the machine had named still has them.
    pub fn unconfirmed(&self) -> BTreeSet<String> {
        let key = |item: &Item| match &item.author {
            Author::Person { key, .. } if item.unconfirmed.is_some() => Some(key.clone()),
            _ => None,
        };
        self.items.iter().filter_map(key).collect()
    }

    /// The caller finds authors by this version of the owner's list from now on. `removed`: those of the [`Self::unconfirmed`] keys that
    /// this list lacks, with the version that removed them.
    pub fn checked(&mut self, owner: UserId, version: u32, removed: &HashMap<String, u32>) -> Changed {
        self.lists.checked = Some((owner, version));
        let mut changed = Changed::default();
        for item in &mut self.items {
            if let Author::Person { user, key, removed_in: removed_in @ None } = &mut item.author
                && *user == owner
            {
                *removed_in = removed.get(key.as_str()).copied();
            }
        }
        let first = self.lists.first.map_or((u64::MAX, 0), |first| (first.seq, first.list));
        self.judge_each(&mut changed, |item| item.unconfirmed.filter(|_| item.seq >= first.0), true);
        self.judge(&mut changed, first.1, false);
        changed
    }

    pub(super) fn person(&mut self, changed: &mut Changed, seq: u64, author: Author, message: Message) {
        let Author::Person { key, .. } = &author else { return };
        let command = (key.clone(), message.local_id.clone());
        if self.commands.contains_key(&command) {
            self.note(changed, seq, author, Note::RepeatedCommand(message.local_id));
            return;
        }
        if let Some(user) = author.removed_by(self.lists.newest) {
            return self.note(changed, seq, author, Note::Removed(user, text_of(message.content)));
        }
        let shown = match message.content {
            Content::Prompt(prompt) => Shown::Prompt(prompt, Taken::NotYet),
            Content::Answer(answer) => Shown::Answer(answer, Taken::NotYet),
            Content::Control(control) => Shown::Control(control, Taken::NotYet),
            other => Shown::Newer(other.type_name().into()),
        };
        let (local_id, at) = (message.local_id, Some(message.at));
        let unconfirmed = self.lists.unconfirmed(&author, self.lists.newest);
        self.push(changed, Item { id: 0, seq, author, unconfirmed, local_id, at, shown });
    }

    /// The machine's message with this count names this list.
    pub(super) fn named(&mut self, changed: &mut Changed, seq: u64, n: u64, list: u32) {
        if self.lists.first.is_none() {
            // The list that it named before is unknown, unless this is its very first message.
            let first = First { seq, n, list: if n == 1 { 0 } else { list } };
            self.lists.first = Some(first);
            self.judge(changed, first.list, false);
        }
        self.lists.newest = self.lists.newest.max(list);
    }

    /// The nearest message of the machine before a command decides about it. Without one the nearest after it does.
    pub(super) fn named_before(&mut self, changed: &mut Changed, before: &mut Self) {
        let (n, next) = self.lists.first.map_or((0, 0), |first| (first.n, first.list));
        if before.lists.first.is_some() {
            // Both decide where the server keeps back what the machine has written between them.
            let is_next = before.last_n.is_some_and(|last| last.checked_add(1) == Some(n));
            let list = if is_next { before.lists.newest } else { before.lists.newest.max(next) };
            self.judge(changed, list, true);
        } else {
            before.judge(&mut Changed::default(), next, false);
        }
        self.lists.newest = self.lists.newest.max(before.lists.newest);
        self.lists.first = before.lists.first.or(self.lists.first);
    }

    /// Judges the commands before the machine's first message by a list that it has named. `is_before`: it has named it before them, so no
    /// other message judges them again.
    fn judge(&mut self, changed: &mut Changed, list: u32, is_before: bool) {
        let end = self.lists.first.map_or(u64::MAX, |first| first.seq);
        self.judge_each(changed, |item| (item.seq < end).then_some(list), is_before);
    }

    /// Judges each item by the list that is given for it.
    fn judge_each(&mut self, changed: &mut Changed, list: impl Fn(&Item) -> Option<u32>, is_before: bool) {
        for item in &mut self.items {
            let Some(list) = list(item) else { continue };
            let was_unconfirmed = item.unconfirmed.take();
            if !matches!(item.shown, Shown::Note(_)) {
                item.unconfirmed = self.lists.unconfirmed(&item.author, list);
            }
            if item.unconfirmed != was_unconfirmed {
                changed.items.push(item.id);
            }
            let known = self.was.remove(&item.id);
            let removed_by = item.author.removed_by(list);
            let (was, user) = match (known, removed_by) {
                (Some(was), Some(user)) => (was, user),
                (None, Some(user)) if !matches!(item.shown, Shown::Note(_)) => {
                    if let Some(command) = command(item) {
                        self.commands.remove(&command);
                    }
                    self.waiting.remove(&item.id);
                    let (local_id, at) = (std::mem::take(&mut item.local_id), item.at.take());
                    (Was { local_id, at, shown: item.shown.clone() }, user)
                }
                (Some(was), None) => {
                    (item.local_id, item.at, item.shown) = (was.local_id, was.at, was.shown);
                    if let Some(command) = command(item) {
                        self.commands.entry(command).or_insert(item.id);
                    }
                    if matches!(item.shown, Shown::Prompt(_, Taken::NotYet | Taken::Queued)) {
                        self.waiting.insert(item.id);
                        self.queued.entry(item.local_id.clone()).or_insert(item.id);
                    }
                    changed.items.push(item.id);
                    continue;
                }
                (None, _) => continue,
            };
            let text = if let Shown::Prompt(prompt, _) = &was.shown { prompt.text.clone() } else { String::new() };
            item.shown = Shown::Note(Note::Removed(user, text));
            if is_before {
                self.bytes = self.bytes.saturating_sub(was.shown.size()).saturating_add(item.shown.size());
            } else {
                self.was.insert(item.id, was);
            }
            changed.items.push(item.id);
        }
    }
}

/// The text of a prompt. It is empty for all other content.
fn text_of(content: Content) -> String {
    match content {
        Content::Prompt(prompt) => prompt.text,
        _ => String::new(),
    }
}
