//! Texts that are still being written, from frames that may be lost, late or repeated.

use std::collections::{BTreeMap, BTreeSet};

use crate::transcript::bounds::{MOST_FRAME_TEXT, end};
use crate::transcript::frame::Frame;

/// The parts that may grow at once.
const MOST_PARTS: usize = 16;
/// What is kept of a part that grows.
const MOST_LIVE: usize = 64 << 10;
/// The completed parts that are remembered, so that a late frame does not bring one back.
const MOST_DONE: usize = 1_024;
const GAP: &str = "…";

/// The growing texts of the turn that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    turn: Option<String>,
    parts: BTreeMap<u32, Growing>,
    done: BTreeSet<u32>,
    /// Every part below it is done.
    done_below: u32,
}

/// A text that is still being written: its newest end, as far as frames have shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Growing {
    /// Where something is missing it has "…".
    pub text: String,
    /// The bytes of the part that are known, those that are not shown included.
    pub until: u64,
    /// It is a thought of the agent.
    pub is_thought: bool,
}

impl Live {
    /// A turn begins.
    pub(super) fn begin(&mut self, turn: &str) {
        *self = Self { turn: Some(turn.to_owned()), ..Self::default() };
    }

    /// The turn has ended. No frame makes anything appear until the next one begins.
    pub(super) fn finish(&mut self) {
        *self = Self::default();
    }

    /// The message with the whole text has come.
    pub(super) fn complete(&mut self, turn: &str, part: u32) {
        if self.turn.as_deref() != Some(turn) {
            return;
        }
        self.parts.remove(&part);
        self.done.insert(part);
        if self.done.len() > MOST_DONE
            && let Some(lowest) = self.done.pop_first()
        {
            self.done_below = self.done_below.max(lowest.saturating_add(1));
        }
    }

    /// Takes a frame. True: what is shown has changed.
    pub(super) fn take(&mut self, frame: &Frame) -> bool {
        let is_over = frame.part < self.done_below || self.done.contains(&frame.part);
        let is_of_turn = self.turn.as_deref() == Some(frame.turn_id.as_str());
        let is_one_too_many = self.parts.len() >= MOST_PARTS && !self.parts.contains_key(&frame.part);
        if is_over || !is_of_turn || is_one_too_many || frame.text.len() > MOST_FRAME_TEXT {
            return false;
        }
        self.parts.entry(frame.part).or_default().take(frame)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (u32, &Growing)> {
        self.parts.iter().map(|(part, growing)| (*part, growing))
    }
}

impl Growing {
    fn take(&mut self, frame: &Frame) -> bool {
        let length = u64::try_from(frame.text.len()).unwrap_or(u64::MAX);
        let until = frame.offset.saturating_add(length);
        if until <= self.until {
            return false;
        }
        let known = self.until.checked_sub(frame.offset).and_then(|known| usize::try_from(known).ok());
        match known.and_then(|known| frame.text.get(known..)) {
            Some(new) => self.text.push_str(new),
            None => {
                self.text.push_str(GAP);
                self.text.push_str(&frame.text);
            }
        }
        (self.until, self.is_thought) = (until, frame.thought);
        if self.text.len() > MOST_LIVE {
            let (kept, _) = end(&self.text, MOST_LIVE / 2);
            self.text = format!("{GAP}{kept}");
        }
        true
    }
}
