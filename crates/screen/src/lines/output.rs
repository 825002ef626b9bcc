//! The output of an agent as people read it: whole characters, and long results of tools folded.

use std::borrow::Cow;

use crate::printed::Printed;

/// The beginning of each line of a tool's result.
const RESULT: &str = "  │ ";
/// The lines of a result that are shown.
const SHOWN: usize = 5;
/// How much of the end is kept.
const KEPT: usize = 64 << 10;

/// The output of one attempt as it comes.
#[derive(Default)]
pub struct AgentOutput {
    /// On a terminal.
    printed: Option<Printed>,
    fold: Option<Fold>,
    /// An incomplete character.
    rest: Vec<u8>,
    end: String,
}

impl AgentOutput {
    /// Without `printed` it comes as it is. It takes what is [`is_of_tool`] for plain.
    pub fn new(printed: Option<Printed>, is_folded: bool) -> Self {
        Self { printed, fold: is_folded.then(Fold::default), ..Self::default() }
    }

    /// What is to be written now.
    pub fn add(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(chunk);
        let end = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.rest.len(),
        };
        let rest = self.rest.split_off(end);
        let ready = std::mem::replace(&mut self.rest, rest);
        self.shown(ready)
    }

    /// What was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.rest);
        let mut out = self.shown(rest);
        if let Some(text) = self.fold.as_mut().map(Fold::finish) {
            out.extend(self.drawn(text.into_bytes()));
        }
        out.extend(self.printed.as_mut().map(Printed::finish).unwrap_or_default().into_bytes());
        out
    }

    /// Whether the output ends with this text, so that it need not be printed again.
    pub fn ends_with(&self, text: &str) -> bool {
        self.end.trim_end().ends_with(text.trim_end())
    }

    /// Whether the next line begins on a new line.
    pub fn is_at_line_start(&self) -> bool {
        self.printed.is_some() || self.end.is_empty() || self.end.ends_with('\n')
    }

    fn shown(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let text = String::from_utf8_lossy(&bytes);
        self.end.push_str(&text);
        if self.end.len() > 2 * KEPT {
            self.end.drain(..self.end.ceil_char_boundary(self.end.len() - KEPT));
        }
        match self.fold.as_mut().map(|fold| fold.add(&text)) {
            Some(folded) => self.drawn(folded.into_bytes()),
            None => self.drawn(bytes),
        }
    }

    fn drawn(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        match &mut self.printed {
            Some(printed) => printed.add(&String::from_utf8_lossy(&bytes)).into_bytes(),
            None => bytes,
        }
    }
}

/// What the runner writes between an agent's messages: a result, or `[tool] what it was called with`.
pub fn is_of_tool(line: &str) -> bool {
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    line.starts_with(RESULT) || named.is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
}

/// Leaves out the lines of a tool's result after the first ones.
#[derive(Debug, Default)]
struct Fold {
    /// The beginning of a line that may be one of a result.
    begun: String,
    /// What is being read.
    within: Within,
    lines: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// The beginning of a line.
    #[default]
    Start,
    /// A line that is shown.
    Shown,
    /// A line that is left out.
    Hidden,
}

impl Fold {
    /// The part of the text that is shown.
    fn add(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for piece in text.split_inclusive('\n') {
            let piece = self.begin(piece, &mut out);
            if self.within == Within::Shown {
                out.push_str(&piece);
            }
            if self.within != Within::Start && piece.ends_with('\n') {
                self.within = Within::Start;
            }
        }
        out
    }

    /// What was held back at the end of the output.
    fn finish(&mut self) -> String {
        let mut out = self.left_out();
        out.push_str(&std::mem::take(&mut self.begun));
        out
    }

    /// Decides at the beginning of a line whether it is shown. Returns what is then known of the line.
    fn begin<'t>(&mut self, piece: &'t str, out: &mut String) -> Cow<'t, str> {
        if self.within != Within::Start {
            return Cow::Borrowed(piece);
        }
        self.begun.push_str(piece);
        if RESULT.starts_with(self.begun.as_str()) && self.begun.len() < RESULT.len() {
            return Cow::Borrowed("");
        }
        let line = std::mem::take(&mut self.begun);
        if line.starts_with(RESULT) {
            self.lines += 1;
            self.within = if self.lines > SHOWN { Within::Hidden } else { Within::Shown };
        } else {
            out.push_str(&self.left_out());
            self.within = Within::Shown;
        }
        Cow::Owned(line)
    }

    fn left_out(&mut self) -> String {
        match std::mem::take(&mut self.lines).saturating_sub(SHOWN) {
            0 => String::new(),
            1 => format!("{RESULT}… 1 more line (--full shows it)\n"),
            more => format!("{RESULT}… {more} more lines (--full shows them)\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str, size: usize) -> String {
        let mut fold = Fold::default();
        let chars: Vec<char> = text.chars().collect();
        let mut out: String = chars.chunks(size).map(|chunk| fold.add(&chunk.iter().collect::<String>())).collect();
        out.push_str(&fold.finish());
        out
    }

    #[test]
    fn long_results_are_folded_however_the_text_arrives() {
        let result: String = (0..125).map(|number| format!("  │ line {number}\n")).collect();
        let text = format!("[Bash] npm test\n{result}All is well\n\n  indented\n  │ short\nend");
        let expected = "[Bash] npm test\n  │ line 0\n  │ line 1\n  │ line 2\n  │ line 3\n  │ line 4\n  \
                        │ … 120 more lines (--full shows them)\nAll is well\n\n  indented\n  │ short\nend";
        for size in [1, 2, 3, 7, 10_000] {
            assert_eq!(folded(&text, size), expected, "{size}");
        }
        assert!(folded(&result, 3).ends_with("  │ … 120 more lines (--full shows them)\n"));
        assert_eq!(folded("  ", 1), "  ");
    }

    #[test]
    fn text_is_shown_as_it_comes() {
        let mut fold = Fold::default();
        assert_eq!(fold.add("Hel"), "Hel");
        assert_eq!(fold.add("lo\n"), "lo\n");
    }

    #[test]
    fn what_tools_do_is_no_markdown() {
        for line in ["  │ *a* | b", "[Bash] ls *.rs *.md", "[files] changed"] {
            assert!(is_of_tool(line), "{line}");
        }
        for line in ["[the docs](https://a.example)", "It **works**", "", "  indented"] {
            assert!(!is_of_tool(line), "{line}");
        }
    }

    #[test]
    fn the_end_is_known() {
        let mut output = AgentOutput::new(None, true);
        output.end.push_str("thinking\nthe answer\n");
        assert!(output.ends_with("the answer") && !output.ends_with("another answer") && output.is_at_line_start());
    }
}
