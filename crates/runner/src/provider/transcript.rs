//! What a program has said so far: text for people to read, and what the verdict needs.
//!
//! It keeps little, however long the attempt: the last answer up to the size of a summary, the session, the usage.

use ensemble_types::runs::{Provider, Usage};
use serde_json::Value;

use super::{claude, codex, gemini};

/// The interface's bound of an output summary, in bytes.
pub(crate) const SUMMARY_BYTES: usize = 16 * 1024;

/// The bound of an error's message, in bytes.
pub(super) const MESSAGE_BYTES: usize = 2 * 1024;

/// Why a failure is not just a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    No,
    /// The model will not do it.
    Model,
    /// The session that it should go on with is not there.
    Session,
}

/// How the program says that its turn ended.
pub(super) enum Ending<'a> {
    Success {
        /// The answer in full; otherwise it is what was said last.
        answer: Option<&'a str>,
    },
    Failure {
        message: &'a str,
        refusal: Refusal,
    },
}

/// [`Ending`], kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Success,
    Failure { message: String, refusal: Refusal },
}

/// What one program has said.
#[derive(Debug)]
pub(crate) struct Transcript {
    provider: Provider,
    session: Option<String>,
    usage: Option<Usage>,
    ended: Option<Ended>,
    /// The last answer, at most [`SUMMARY_BYTES`] of it.
    answer: Cut,
    warning: String,
    /// For people, since the last [`Self::take_text`].
    text: String,
    /// Whether `text` so far, taken or not, ends a line.
    at_line_start: bool,
    /// Whether the next delta begins a new answer.
    answer_is_over: bool,
}

impl Transcript {
    pub(crate) fn of(provider: Provider) -> Self {
        Self {
            provider,
            session: None,
            usage: None,
            ended: None,
            answer: Cut::new(SUMMARY_BYTES),
            warning: String::new(),
            text: String::new(),
            at_line_start: true,
            answer_is_over: true,
        }
    }

    /// Reads one line that the program printed. What is not JSON is shown as it is.
    pub(crate) fn line(&mut self, line: &str) {
        let event = line.trim_start().starts_with('{').then(|| serde_json::from_str::<Value>(line).ok()).flatten();
        let Some(event) = event else {
            if !line.trim().is_empty() {
                self.notes(line);
            }
            return;
        };
        match self.provider {
            Provider::Claude => claude::read(&event, self),
            Provider::Codex => codex::read(&event, self),
            Provider::Gemini => gemini::read(&event, self),
        }
    }

    /// Shows a piece of something that is too long to be a line of the program's.
    pub(crate) fn raw(&mut self, piece: &str) {
        self.shows(piece);
    }

    /// What people are to see, since this was last asked. U+0000 is not part of it: the interface refuses it.
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

    /// The last answer, `None` when there was none.
    pub(crate) fn answer(&self) -> Option<String> {
        self.answer.text()
    }

    /// Whether the program says that the session it should go on with is not there.
    pub(crate) fn lost_session(&self, stderr: &str) -> bool {
        match (&self.ended, self.provider) {
            (Some(Ended::Failure { refusal, .. }), _) => *refusal == Refusal::Session,
            (None, Provider::Codex) => codex::lost_session(stderr),
            (None, Provider::Gemini) => gemini::lost_session(stderr),
            _ => false,
        }
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    pub(super) fn session(&mut self, id: &str) {
        if super::is_session(id) {
            self.session = Some(id.to_owned());
        }
    }

    /// One whole thing that the model said.
    pub(super) fn says(&mut self, text: &str) {
        self.answer.start(text);
        self.answer_is_over = true;
        self.notes(text);
    }

    /// A piece of what the model is saying.
    pub(super) fn goes_on_saying(&mut self, piece: &str) {
        if std::mem::take(&mut self.answer_is_over) {
            self.answer.start(piece);
        } else {
            self.answer.push(piece);
        }
        self.shows(piece);
    }

    /// Something beside what the model says, on lines of its own.
    pub(super) fn notes(&mut self, note: &str) {
        self.answer_is_over = true;
        self.ends_line();
        self.shows(note);
        self.ends_line();
    }

    pub(super) fn warns(&mut self, warning: &str) {
        self.warning = cut(warning, MESSAGE_BYTES);
        self.notes(&format!("[error] {}", one_line(warning)));
    }

    pub(super) fn last_warning(&self) -> &str {
        &self.warning
    }

    pub(super) fn used(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>, cost_usd: Option<f64>) {
        let usage = Usage { input_tokens, output_tokens, cost_usd: cost_usd.filter(|cost| cost.is_finite()) };
        self.usage = (usage != Usage::default()).then_some(usage);
    }

    pub(super) fn ends(&mut self, ending: Ending<'_>) {
        self.ends_line();
        self.ended = Some(match ending {
            Ending::Success { answer } => {
                if let Some(answer) = answer {
                    self.answer.start(answer);
                }
                Ended::Success
            }
            Ending::Failure { message, refusal } => Ended::Failure { message: cut(message, MESSAGE_BYTES), refusal },
        });
    }

    fn shows(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.at_line_start = text.ends_with('\n');
        }
    }

    fn ends_line(&mut self) {
        if !self.at_line_start {
            self.shows("\n");
        }
    }
}

/// A text that stops growing at its bound, and says so.
#[derive(Debug)]
struct Cut {
    kept: String,
    bound: usize,
    is_cut: bool,
}

const MARK: &str = "…";

impl Cut {
    const fn new(bound: usize) -> Self {
        Self { kept: String::new(), bound, is_cut: false }
    }

    fn start(&mut self, text: &str) {
        self.kept.clear();
        self.is_cut = false;
        self.push(text);
    }

    fn push(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let room = self.bound - MARK.len() - self.kept.len();
        let fits = text.get(..floor_char_boundary(text, room)).unwrap_or_default();
        self.is_cut = fits.len() < text.len();
        self.kept.push_str(fits);
    }

    fn text(&self) -> Option<String> {
        (!self.kept.is_empty()).then(|| format!("{}{}", self.kept, if self.is_cut { MARK } else { "" }))
    }
}

/// At most `bytes` of a text, marked when it was longer.
pub(super) fn cut(text: &str, bytes: usize) -> String {
    let mut cut = Cut::new(bytes);
    cut.push(text);
    cut.text().unwrap_or_default()
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A text on one line of at most 200 characters.
pub(super) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((at, _)) => format!("{}{MARK}", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_summary_is_cut_between_characters() {
        let mut transcript = Transcript::of(Provider::Gemini);
        let smile = "😀".repeat(SUMMARY_BYTES);
        transcript.goes_on_saying(&smile);
        transcript.goes_on_saying("more");
        let answer = transcript.answer().unwrap();
        assert!(answer.len() <= SUMMARY_BYTES && answer.len() > SUMMARY_BYTES - 8 && answer.ends_with("😀…"));
    }

    #[test]
    fn deltas_join_and_notes_stand_on_lines_of_their_own() {
        let mut transcript = Transcript::of(Provider::Gemini);
        for line in [
            r#"{"type":"message","role":"assistant","content":"one ","delta":true}"#,
            r#"{"type":"message","role":"assistant","content":"two","delta":true}"#,
            r#"{"type":"tool_use","tool_name":"shell","parameters":{"command":"ls\n-l"}}"#,
            "not JSON",
            r#"{"type":"message","role":"assistant","content":"three\u0000","delta":true}"#,
            r#"{"type":"result","status":"success","stats":{"input_tokens":3,"output_tokens":4}}"#,
        ] {
            transcript.line(line);
        }
        assert_eq!(transcript.take_text(), "one two\n[shell] ls -l\nnot JSON\nthree\u{fffd}\n");
        assert_eq!(transcript.take_text(), "");
        assert_eq!(transcript.usage().unwrap().output_tokens, Some(4));
        assert_eq!(transcript.ended(), Some(&Ended::Success));
    }

    proptest! {
        #[test]
        fn whatever_is_printed_is_taken(lines in proptest::collection::vec(printed(), 0..30)) {
            for provider in Provider::ALL {
                let mut transcript = Transcript::of(provider);
                for line in &lines {
                    transcript.line(line);
                }
                let text = transcript.take_text();
                prop_assert!(!text.contains('\0') && (text.is_empty() || transcript.at_line_start == text.ends_with('\n')));
                prop_assert!(transcript.answer().is_none_or(|answer| answer.len() <= SUMMARY_BYTES));
            }
        }
    }

    /// Lines with the words that the programs use, in places where they do not use them.
    fn printed() -> impl Strategy<Value = String> {
        let word = proptest::sample::select(vec![
            "type",
            "subtype",
            "result",
            "assistant",
            "message",
            "content",
            "text",
            "item",
            "item.completed",
            "agent_message",
            "error",
            "turn.failed",
            "usage",
            "input_tokens",
            "session_id",
            "is_error",
            "success",
            "stats",
            "status",
            "init",
            "system",
            "role",
            "😀\0",
        ]);
        let leaf = prop_oneof![
            word.clone().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        let value = leaf.prop_recursive(3, 12, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::vec((word.clone(), inner), 0..4)
                    .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
            ]
        });
        prop_oneof![3 => value.prop_map(|value| value.to_string()), 1 => any::<String>()]
    }

    #[test]
    fn what_codex_calls_an_error_is_not_the_end() {
        let mut transcript = Transcript::of(Provider::Codex);
        for line in [
            r#"{"type":"thread.started","thread_id":"t-1"}"#,
            r#"{"type":"item.completed","item":{"type":"error","message":"no metadata"}}"#,
            r#"{"type":"error","message":"Reconnecting... 1/5"}"#,
            r#"{"type":"item.completed","item":{"type":"agent_message","text":"done"}}"#,
            r#"{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":5}}"#,
        ] {
            transcript.line(line);
        }
        assert_eq!(transcript.ended(), Some(&Ended::Success));
        assert_eq!(transcript.session_id(), Some("t-1"));
        assert_eq!(transcript.answer().as_deref(), Some("done"));
    }
}
