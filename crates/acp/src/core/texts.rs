//! Texts of the agent while they grow, so that an editor gets each piece once: first from live frames, then the rest from the signed
//! message with the whole text.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::Frame;
use ensemble_protocol::transcript::body::TextPart;
use ensemble_protocol::transcript::bounds::MOST_BODY;

/// The parts that may grow at once.
const MOST_PARTS: usize = 16;

/// What the editor has of the parts of the turn that runs.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<u32, String>);

/// What is missing when the whole text is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// The text continues with this. It may be empty.
    More(String),
    /// What came in frames was not what the agent wrote. They are not signed, so only this is.
    Other(String),
}

impl Texts {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What a frame adds. A frame after a gap adds nothing: the rest comes with the whole text.
    pub(super) fn frame(&mut self, frame: &Frame) -> Option<String> {
        if self.0.len() >= MOST_PARTS && !self.0.contains_key(&frame.part) {
            return None;
        }
        let known = self.0.entry(frame.part).or_default();
        let from = u64::try_from(known.len()).ok()?.checked_sub(frame.offset)?;
        let new = frame.text.get(usize::try_from(from).ok()?..)?;
        if new.is_empty() || known.len() + new.len() > MOST_BODY {
            return None;
        }
        known.push_str(new);
        Some(new.to_owned())
    }

    /// What the whole text adds.
    pub(super) fn complete(&mut self, whole: &TextPart) -> Rest {
        let known = self.0.remove(&whole.part).unwrap_or_default();
        match whole.text.strip_prefix(known.as_str()) {
            Some(rest) => Rest::More(rest.to_owned()),
            None if known.starts_with(whole.text.as_str()) => Rest::More(String::new()),
            None => Rest::Other(whole.text.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(part: u32, offset: u64, text: &str) -> Frame {
        Frame { turn_id: "t".into(), part, offset, text: text.into(), thought: false }
    }

    fn whole(part: u32, text: &str) -> TextPart {
        let (turn_id, text) = ("t".into(), text.into());
        TextPart { turn_id, part, of: None, text, interrupted: false, parent_tool_call_id: None }
    }

    #[test]
    fn each_piece_comes_once() {
        let mut texts = Texts::default();
        assert_eq!(texts.frame(&frame(0, 0, "Grü")), Some("Grü".into()));
        assert_eq!(texts.frame(&frame(0, 0, "Grüße")), Some("ße".into()));
        assert_eq!(texts.frame(&frame(0, 0, "Grü")), None, "late");
        assert_eq!(texts.frame(&frame(0, 4, "ße 😀")), Some(" 😀".into()));
        assert_eq!(texts.frame(&frame(0, 40, "far")), None, "a gap");
        assert_eq!(texts.frame(&frame(0, 3, "x")), None, "within a character");
        assert_eq!(texts.complete(&whole(0, "Grüße 😀 and so on")), Rest::More(" and so on".into()));
        assert_eq!(texts.complete(&whole(1, "new")), Rest::More("new".into()));
    }

    #[test]
    fn what_differs_is_said_again() {
        let mut texts = Texts::default();
        texts.frame(&frame(0, 0, "I deleted it"));
        assert_eq!(texts.complete(&whole(0, "Hello")), Rest::Other("Hello".into()));
        texts.frame(&frame(1, 0, "Hello \n"));
        assert_eq!(texts.complete(&whole(1, "Hello")), Rest::More(String::new()), "the end was trimmed");
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut texts = Texts::default();
        for part in 0..100 {
            texts.frame(&frame(part, 0, "x"));
        }
        assert_eq!(texts.0.len(), MOST_PARTS);
        let long = "x".repeat(MOST_BODY);
        assert_eq!(texts.frame(&frame(0, 1, &long)), None);
    }
}
