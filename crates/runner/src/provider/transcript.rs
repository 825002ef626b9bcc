//! The state of a program's output so far: text for people, and what the verdict needs.
//!
//! Its size does not grow with the attempt: it keeps the last answer up to the size of a summary, the session and the
//! usage.

use std::collections::VecDeque;

use ensemble_types::runs::{PermissionDenial, PermissionDenials, Usage};
use ensemble_types::text::Text;
use ensemble_types::time::Timestamp;

use super::costs::CostBounds;
use super::excerpt::{Excerpt, excerpt, one_line};
use super::names::is_session;

/// The interface's limit of an output summary, in bytes.
pub(crate) const SUMMARY_BYTES: usize = 16 * 1024;

/// The limit of an error message, in bytes.
pub(super) const MESSAGE_BYTES: usize = 2 * 1024;

/// Before each line of a tool's result, so that a reader can fold it.
pub(crate) const RESULT: &str = "  │ ";

/// The longest result of a tool that is shown, in bytes.
const RESULT_BYTES: usize = 16 * 1024;

/// Calls whose results may come later.
const REMEMBERED_CALLS: usize = 64;

/// The interface's limits of refusals.
const LISTED_DENIALS: usize = 32;
const DENIAL_BYTES: usize = 512;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    No,
    /// The model refused the request.
    Model,
    /// The session to resume does not exist.
    Session,
    /// The program is not signed in.
    SignIn,
    /// The provider's usage limit is reached, and the program gave up.
    Limit,
    /// It has cost what it may.
    Cost,
}

/// How the program reports the end of its turn.
pub(super) enum Ending<'a> {
    Success {
        /// The full answer. When absent, the last message is the answer.
        answer: Option<&'a str>,
    },
    Failure {
        message: &'a str,
        refusal: Refusal,
    },
}

/// An [`Ending`] that owns its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Success,
    Failure { message: String, refusal: Refusal },
}

/// What one program has printed.
#[derive(Debug)]
pub(crate) struct Transcript {
    session: Option<String>,
    usage: Option<Usage>,
    ended: Option<Ended>,
    /// The last answer, at most [`SUMMARY_BYTES`] of it.
    answer: Excerpt,
    warning: String,
    /// Text for people since the last [`Self::take_text`].
    text: String,
    /// Whether all text so far ends with a line end.
    at_line_start: bool,
    /// Whether the next delta begins a new answer.
    answer_is_complete: bool,
    denials: PermissionDenials,
    /// The last calls of tools, each with its id, the tool and what it was called with.
    calls: VecDeque<(String, String, String)>,
    costs: CostBounds,
    /// Costs are reported with those of the session's earlier attempts.
    repeats_costs: bool,
    /// When the provider can be used again, as it said last.
    limit_ends: Option<Timestamp>,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self {
            session: None,
            usage: None,
            ended: None,
            answer: Excerpt::new(SUMMARY_BYTES),
            warning: String::new(),
            text: String::new(),
            at_line_start: true,
            answer_is_complete: true,
            denials: PermissionDenials::default(),
            calls: VecDeque::new(),
            costs: CostBounds::default(),
            repeats_costs: false,
            limit_ends: None,
        }
    }

    pub(crate) fn with_costs(costs: CostBounds) -> Self {
        Self { costs, ..Self::new() }
    }

    /// It has cost more than it may.
    pub(crate) fn is_too_expensive(&self) -> bool {
        let cost = self.usage.and_then(|usage| usage.cost_usd);
        cost.zip(self.costs.max).is_some_and(|(cost, max)| cost > max)
    }

    /// When the provider can be used again, if it said so.
    pub(super) fn limit_ends(&self) -> Option<Timestamp> {
        self.limit_ends
    }

    pub(super) fn set_limit_end(&mut self, ends: Option<Timestamp>) {
        self.limit_ends = ends;
    }

    pub(super) fn set_repeats_costs(&mut self, repeats: bool) {
        self.repeats_costs = repeats;
    }

    /// Shows a piece of a line that is too long to be an event.
    pub(crate) fn raw(&mut self, piece: &str) {
        self.show(piece);
    }

    /// The text for people since the last call. U+0000 is replaced, because the interface refuses it.
    pub(crate) fn take_text(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// What the program was refused, or `None`.
    pub(crate) fn denials(&self) -> Option<PermissionDenials> {
        (self.denials.count > 0).then(|| self.denials.clone())
    }

    /// The last answer, or `None`.
    pub(crate) fn answer(&self) -> Option<String> {
        self.answer.text()
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    pub(super) fn set_session(&mut self, id: &str) {
        if is_session(id) {
            self.session = Some(id.to_owned());
        }
    }

    /// A complete message of the model.
    pub(super) fn message(&mut self, text: &str) {
        self.answer.start(text);
        self.answer_is_complete = true;
        self.note(text);
    }

    /// A piece of the message that the model is writing.
    pub(super) fn message_delta(&mut self, piece: &str) {
        if std::mem::take(&mut self.answer_is_complete) {
            self.answer.start(piece);
        } else {
            self.answer.push(piece);
        }
        self.show(piece);
    }

    /// Whether the message that the model is writing has come in pieces so far.
    pub(super) fn is_streaming(&self) -> bool {
        !self.answer_is_complete
    }

    /// The message that came in pieces is complete.
    pub(super) fn end_message(&mut self) {
        self.answer_is_complete = true;
        self.end_line();
    }

    /// What a tool returned: each line with [`RESULT`] before it, at most [`RESULT_BYTES`].
    pub(super) fn tool_result(&mut self, result: &str) {
        self.answer_is_complete = true;
        self.end_line();
        let result = result.trim_end();
        if result.is_empty() {
            return;
        }
        for line in excerpt(result, RESULT_BYTES).lines() {
            self.show(RESULT);
            self.show(line);
            self.show("\n");
        }
    }

    /// A tool was called. Its result may say that it was refused.
    pub(super) fn call(&mut self, id: &str, tool: &str, detail: &str) {
        if self.calls.len() >= REMEMBERED_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back((id.to_owned(), tool.to_owned(), excerpt(detail, DENIAL_BYTES)));
    }

    /// The call with this id was refused.
    pub(super) fn deny_call(&mut self, id: &str) {
        if let Some((_, tool, detail)) = self.calls.iter().find(|(of, ..)| of == id).cloned() {
            self.deny(&tool, &detail);
        }
    }

    /// The program was refused something, because no person was there to allow it.
    pub(super) fn deny(&mut self, tool: &str, detail: &str) {
        self.denials.count = self.denials.count.saturating_add(1);
        let tool = Text::new(excerpt(&one_line(tool), 64)).or_else(|_| Text::new("unknown"));
        let summary = Text::new(excerpt(&one_line(detail).replace('\0', "\u{fffd}"), DENIAL_BYTES));
        if let (Ok(tool), Ok(summary)) = (tool, summary)
            && self.denials.denials.len() < LISTED_DENIALS
        {
            self.denials.denials.push(PermissionDenial { tool, summary });
        }
    }

    /// Other information, on its own lines.
    pub(super) fn note(&mut self, note: &str) {
        self.answer_is_complete = true;
        self.end_line();
        self.show(note);
        self.end_line();
    }

    pub(super) fn warn(&mut self, warning: &str) {
        self.warning = excerpt(warning, MESSAGE_BYTES);
        self.note(&format!("[error] {}", one_line(warning)));
    }

    pub(super) fn last_warning(&self) -> &str {
        &self.warning
    }

    pub(super) fn set_usage(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>, cost_usd: Option<f64>) {
        let before = if self.repeats_costs { self.costs.before } else { 0.0 };
        let cost_usd = cost_usd.filter(|cost| cost.is_finite()).map(|cost| (cost - before).max(0.0));
        let usage = Usage { input_tokens, output_tokens, cost_usd };
        self.usage = (usage != Usage::default()).then_some(usage);
    }

    pub(super) fn end(&mut self, ending: Ending<'_>) {
        self.end_line();
        self.ended = Some(match ending {
            Ending::Success { answer } => {
                if let Some(answer) = answer {
                    self.answer.start(answer);
                }
                Ended::Success
            }
            Ending::Failure { message, refusal } => {
                Ended::Failure { message: excerpt(message, MESSAGE_BYTES), refusal }
            }
        });
    }

    fn show(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.at_line_start = text.ends_with('\n');
        }
    }

    fn end_line(&mut self) {
        if !self.at_line_start {
            self.show("\n");
        }
    }
}

#[cfg(test)]
mod tests;
