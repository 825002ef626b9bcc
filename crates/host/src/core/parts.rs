//! The texts of the turn that are still growing: only their newest ends.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::Frame;
use ensemble_protocol::transcript::bounds::{MOST_FRAME_TEXT, end};

/// Texts that may grow at once.
const MOST_PARTS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<u32, Part>);

#[derive(Debug, Default)]
struct Part {
    end: String,
    bytes: u64,
    has_grown: bool,
    is_thought: bool,
}

impl Parts {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn grow(&mut self, part: u32, text: &str, is_thought: bool) {
        if self.0.len() >= MOST_PARTS && !self.0.contains_key(&part) {
            return;
        }
        let known = self.0.entry(part).or_default();
        known.is_thought = is_thought;
        known.bytes = known.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        known.end.push_str(text);
        known.has_grown = true;
        if known.end.len() > 2 * MOST_FRAME_TEXT {
            known.end = end(&known.end, MOST_FRAME_TEXT).0.to_owned();
        }
    }

    /// The whole text is a message now.
    pub(super) fn complete(&mut self, part: u32) {
        self.0.remove(&part);
    }

    pub(super) fn has_grown(&self) -> bool {
        self.0.values().any(|part| part.has_grown)
    }

    /// The newest end of each text that has grown since the last call.
    pub(super) fn frames(&mut self, turn: &str) -> Vec<Frame> {
        let grown = self.0.iter_mut().filter(|(_, part)| part.has_grown);
        let frames = grown.map(|(number, part)| {
            part.has_grown = false;
            let (text, _) = end(&part.end, MOST_FRAME_TEXT);
            let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
            let offset = part.bytes.saturating_sub(length);
            let (turn_id, thought) = (turn.to_owned(), part.is_thought);
            Frame { turn_id, part: *number, offset, text: text.to_owned(), thought }
        });
        frames.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_newest_end_and_says_where_it_is() {
        let mut parts = Parts::default();
        parts.grow(0, "hello", true);
        let hello = Frame { turn_id: "t".into(), part: 0, offset: 0, text: "hello".into(), thought: true };
        assert_eq!(parts.frames("t"), [hello]);
        assert!(!parts.has_grown() && parts.frames("t").is_empty(), "nothing is sent twice");
        for _ in 0..1_000 {
            parts.grow(0, &"x".repeat(100), false);
        }
        let [frame] = parts.frames("t").try_into().unwrap();
        assert_eq!((frame.text.len(), frame.offset), (MOST_FRAME_TEXT, 100_005 - MOST_FRAME_TEXT as u64));
        parts.complete(0);
        parts.grow(1, "next", false);
        assert_eq!(parts.frames("t").len(), 1);
    }

    #[test]
    fn growing_texts_are_bounded() {
        let mut parts = Parts::default();
        (0..40).for_each(|part| parts.grow(part, "x", false));
        assert_eq!(parts.frames("t").len(), MOST_PARTS);
    }
}
