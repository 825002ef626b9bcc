//! What people read of an agent's work: what it says, and a line for each call of a tool with its result.
//!
//! Its size does not grow with the attempt: it keeps the last answer up to the size of a summary, and the last calls.

use std::collections::VecDeque;

use ensemble_agent::PartKind;
use ensemble_protocol::transcript::body::{Block, ToolCall, ToolContent};
use ensemble_protocol::transcript::words::ToolStatus;

use crate::excerpt::{Excerpt, excerpt, one_line};

/// The interface's limit of an output summary, in bytes.
pub(super) const SUMMARY_BYTES: usize = 16 * 1024;
/// Before each line of a tool's result, so that a reader can fold it.
pub(super) const RESULT: &str = "  │ ";
/// The longest result of a tool that is shown, in bytes.
const RESULT_BYTES: usize = 16 * 1024;
/// Calls whose results may come later.
const REMEMBERED_CALLS: usize = 64;

/// The text of one attempt.
#[derive(Debug)]
pub(super) struct Shown {
    /// The last answer, at most [`SUMMARY_BYTES`] of it.
    answer: Excerpt,
    /// Since the last [`Self::take`].
    text: String,
    /// Whether all text so far ends with a line end.
    at_line_start: bool,
    /// The part that grows. Its text was shown.
    growing: Option<u32>,
    /// The agent has thought since the last text, and whether it has done something else.
    has_thought: bool,
    has_acted: bool,
    /// The beginning of a line that is no message was shown.
    in_piece: bool,
    /// The last calls.
    calls: VecDeque<Call>,
}

#[derive(Debug)]
struct Call {
    id: String,
    kind: String,
    title: String,
    is_shown: bool,
}

impl Shown {
    pub(super) fn new() -> Self {
        Self {
            answer: Excerpt::new(SUMMARY_BYTES),
            text: String::new(),
            at_line_start: true,
            growing: None,
            has_thought: false,
            has_acted: false,
            in_piece: false,
            calls: VecDeque::new(),
        }
    }

    /// What there is since the last call. U+0000 is replaced, because the interface refuses it.
    pub(super) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
    }

    /// The last answer, or `None`.
    pub(super) fn answer(&self) -> Option<String> {
        self.answer.text()
    }

    pub(super) fn set_answer(&mut self, answer: &str) {
        if !answer.is_empty() {
            self.answer.start(answer);
        }
    }

    /// What the agent says grows.
    pub(super) fn delta(&mut self, part: u32, kind: PartKind, text: &str) {
        if kind == PartKind::Thought {
            self.has_thought = true;
            return;
        }
        if self.growing != Some(part) {
            self.end_line();
            // A thought alone divides no answer.
            if self.has_acted || !self.has_thought {
                self.answer.start("");
            }
        }
        (self.has_thought, self.has_acted) = (false, false);
        self.growing = Some(part);
        self.answer.push(text);
        self.show(text);
    }

    /// A part is complete. A part of a longer text continues the answer. A sub-agent's text is none.
    pub(super) fn complete(&mut self, part: u32, continues: bool, of_sub_agent: bool, text: &str) {
        if self.growing.take_if(|growing| *growing == part).is_none() {
            if continues {
                self.answer.push(text);
            } else if !of_sub_agent {
                self.answer.start(text);
            }
            self.note(text);
        }
        self.end_line();
    }

    /// A call of a tool, or what has changed in it.
    pub(super) fn tool(&mut self, call: &ToolCall) {
        let id = &call.tool_call_id;
        let at = self.calls.iter().position(|known| known.id == *id).unwrap_or_else(|| {
            if self.calls.len() >= REMEMBERED_CALLS {
                self.calls.pop_front();
            }
            let (kind, title) = ("tool".to_owned(), String::new());
            self.calls.push_back(Call { id: id.clone(), kind, title, is_shown: false });
            self.calls.len() - 1
        });
        if let Some(known) = self.calls.get_mut(at) {
            known.kind = call.kind.as_ref().map_or(std::mem::take(&mut known.kind), |kind| kind.as_str().to_owned());
            known.title = call.title.as_deref().map_or(std::mem::take(&mut known.title), one_line);
        }
        // Some agents say what a call is for only when it begins.
        if call.status.as_ref().is_some_and(|status| *status != ToolStatus::Pending) {
            self.begun(id);
        }
        if matches!(call.status, Some(ToolStatus::Completed | ToolStatus::Failed)) {
            let texts: Vec<&str> = call.content.iter().flatten().filter_map(said).collect();
            self.result(&texts.join("\n"));
        }
    }

    /// A call has begun, or is refused. Returns its kind.
    pub(super) fn begun(&mut self, id: &str) -> Option<String> {
        let call = self.calls.iter_mut().find(|call| call.id == id)?;
        let (line, kind) = (format!("[{}] {}", call.kind, call.title), call.kind.clone());
        if !std::mem::replace(&mut call.is_shown, true) {
            self.note(&line);
        }
        Some(kind)
    }

    /// Each line with [`RESULT`] before it, at most [`RESULT_BYTES`].
    fn result(&mut self, result: &str) {
        self.end_line();
        for line in excerpt(result.trim_end(), RESULT_BYTES).lines() {
            self.show(RESULT);
            self.show(line);
            self.show("\n");
        }
    }

    /// Other information, on its own lines.
    pub(super) fn note(&mut self, note: &str) {
        (self.growing, self.has_acted) = (None, true);
        self.end_line();
        self.show(note);
        self.end_line();
    }

    /// A line that is no message, or a piece of one.
    pub(super) fn raw(&mut self, text: &str) {
        self.growing = None;
        if !self.in_piece {
            self.end_line();
        }
        self.show(text);
        self.in_piece = !text.ends_with('\n');
    }

    pub(super) fn end_line(&mut self) {
        if !self.at_line_start {
            self.show("\n");
        }
    }

    fn show(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.at_line_start = text.ends_with('\n');
        }
    }
}

/// What a tool has returned. What it has changed is in the worktree's difference.
fn said(content: &ToolContent) -> Option<&str> {
    match content {
        ToolContent::Content { content: Block::Text { text }, .. } => Some(text),
        ToolContent::Terminal(terminal) => Some(&terminal.output),
        _ => None,
    }
}
