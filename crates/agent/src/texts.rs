//! The texts and thoughts of a turn while they grow: numbered parts, each completed once.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::bounds::{MOST_TEXT, split, written_size};
use serde::{Deserialize, Serialize};

use crate::event::{Event, PartKind};

/// The parts that may grow at once. An agent has one or two.
const MOST_OPEN: usize = 32;

/// The parts of the turn that runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Texts {
    next: u32,
    open: BTreeMap<String, Growing>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Growing {
    part: u32,
    /// The part with which the text began, when this one continues it.
    of: Option<u32>,
    kind: PartKind,
    text: String,
    /// What `text` takes in a message.
    written: usize,
    /// The bytes that were completed in earlier parts.
    before: usize,
    parent: Option<String>,
}

impl Texts {
    /// The number of a new part.
    pub(crate) fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    /// The text with this key grows.
    pub(crate) fn delta(&mut self, events: &mut Vec<Event>, key: &str, kind: PartKind, text: &str) {
        if text.is_empty() || (self.open.len() >= MOST_OPEN && !self.open.contains_key(key)) {
            return;
        }
        for piece in split(text) {
            let size = written_size(piece);
            let is_full = self.open.get(key).is_some_and(|growing| growing.written + size > MOST_TEXT);
            let full = if is_full { self.open.remove(key) } else { None };
            let (of, before) = match full {
                Some(growing) => {
                    let of = growing.of.or(Some(growing.part));
                    let before = growing.before + growing.text.len();
                    events.push(growing.complete(false));
                    (of, before)
                }
                None => (None, 0),
            };
            if !self.open.contains_key(key) {
                let part = self.number();
                let fresh = Growing { part, of, kind, text: String::new(), written: 0, before, parent: None };
                self.open.insert(key.to_owned(), fresh);
            }
            if let Some(growing) = self.open.get_mut(key) {
                growing.text.push_str(piece);
                growing.written += size;
                events.push(Event::Delta { part: growing.part, kind, text: piece.to_owned() });
            }
        }
    }

    /// The text with this key is complete, and this is the whole of it.
    pub(crate) fn whole(
        &mut self,
        events: &mut Vec<Event>,
        key: &str,
        kind: PartKind,
        whole: &str,
        parent: Option<&str>,
    ) {
        let (mut of, before, mut number) = match self.open.remove(key) {
            Some(growing) => (growing.of, growing.before, Some(growing.part)),
            None => (None, 0, None),
        };
        // What was completed before is not said again. A text that turned out to differ is said whole.
        let rest = whole.get(before..).unwrap_or(whole);
        if rest.is_empty() && number.is_none() {
            return;
        }
        for piece in split(rest) {
            let part = number.take().unwrap_or_else(|| self.number());
            let (text, parent) = (piece.to_owned(), parent.map(str::to_owned));
            events.push(Event::Complete { part, of, kind, text, interrupted: false, parent });
            of = of.or(Some(part));
        }
    }

    /// Completes the text with this key as it is.
    pub(crate) fn close(&mut self, events: &mut Vec<Event>, key: &str) {
        events.extend(self.open.remove(key).map(|growing| growing.complete(false)));
    }

    /// Completes all that is open.
    pub(crate) fn close_all(&mut self, events: &mut Vec<Event>, interrupted: bool) {
        let mut open: Vec<Growing> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_by_key(|growing| growing.part);
        events.extend(open.into_iter().map(|growing| growing.complete(interrupted)));
    }

    /// A new turn counts from 0.
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }
}

impl Growing {
    fn complete(self, interrupted: bool) -> Event {
        let Self { part, of, kind, text, parent, .. } = self;
        Event::Complete { part, of, kind, text, interrupted, parent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_said_in_parts_and_nothing_twice() {
        let (mut texts, mut events) = (Texts::default(), Vec::new());
        let piece = "x".repeat(200 << 10);
        let whole = piece.repeat(7);
        (0..7).for_each(|_| texts.delta(&mut events, "k", PartKind::Text, &piece));
        texts.whole(&mut events, "k", PartKind::Text, &whole, None);
        texts.whole(&mut events, "k", PartKind::Thought, "next", None);
        let complete: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Complete { part, of, text, .. } => Some((*part, *of, text.as_str())),
                _ => None,
            })
            .collect();
        let numbers: Vec<_> = complete.iter().map(|(part, of, _)| (*part, *of)).collect();
        assert_eq!(numbers, [(0, None), (1, Some(0)), (2, Some(0)), (3, Some(0)), (4, None)]);
        assert_eq!(complete[..4].iter().map(|(_, _, text)| *text).collect::<String>(), whole);
    }

    #[test]
    fn what_was_interrupted_says_so() {
        let (mut texts, mut events) = (Texts::default(), Vec::new());
        texts.delta(&mut events, "a", PartKind::Text, "I beg");
        texts.close_all(&mut events, true);
        texts.close_all(&mut events, true);
        assert_eq!(events.len(), 2);
        assert!(matches!(&events[1], Event::Complete { part: 0, interrupted: true, .. }));
    }
}
