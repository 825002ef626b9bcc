//! The commands of people. What a device writes after the machine's first message that names a list without its key is not a command.

use super::item::command;
use super::{Author, Changed, Item, Note, Shown, Taken, View};
use crate::transcript::body::{Content, Message};

/// The versions of the owner's list that the machine has named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lists {
    newest: u32,
    /// The list by which messages before the machine's first one are judged. 0: by none. `None`: there is no message of the machine.
    first: Option<u32>,
}

impl View {
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
        self.push(changed, Item { id: 0, seq, author, local_id: message.local_id, at: Some(message.at), shown });
    }

    /// The machine's message with this count names this list.
    pub(super) fn named(&mut self, changed: &mut Changed, n: Option<u64>, list: u32) {
        if self.lists.first.is_none() {
            // The list that it named before is unknown, unless this is its very first message.
            let first = if n == Some(1) { 0 } else { list };
            self.lists.first = Some(first);
            self.judge(changed, first);
        }
        self.lists.newest = self.lists.newest.max(list);
    }

    /// If one of two parts has no message of the machine, the nearest one in the other part decides.
    pub(super) fn named_before(&mut self, changed: &mut Changed, before: &mut Self) {
        match (before.lists.first, self.lists.first) {
            (None, Some(first)) => before.judge(changed, first),
            (Some(_), None) => self.judge(changed, before.lists.newest),
            _ => {}
        }
        self.lists.newest = self.lists.newest.max(before.lists.newest);
        self.lists.first = before.lists.first.or(self.lists.first);
    }

    /// Judges the commands that are shown, and that the machine has not answered yet, by a list that it has named.
    fn judge(&mut self, changed: &mut Changed, list: u32) {
        for item in self.items.iter_mut().filter(|item| !matches!(item.shown, Shown::Note(_))) {
            let Some(user) = item.author.removed_by(list) else { continue };
            if let Some(command) = command(item) {
                self.commands.remove(&command);
            }
            self.waiting.remove(&item.id);
            self.bytes = self.bytes.saturating_sub(item.shown.size());
            let text = match &item.shown {
                Shown::Prompt(prompt, _) => prompt.text.clone(),
                _ => String::new(),
            };
            (item.shown, item.at, item.local_id) = (Shown::Note(Note::Removed(user, text)), None, String::new());
            self.bytes = self.bytes.saturating_add(item.shown.size());
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
