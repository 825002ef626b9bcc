//! Lines of text with colours. Text is cleaned when it is added, so that it cannot control the terminal.

use ensemble_types::line::{clean, inline};
use ensemble_types::runs::{RunStatus, TaskStatus};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What a part of a line means, as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Strong,
    Dim,
    Good,
    Busy,
    Bad,
}

impl Tone {
    /// As a parameter of "select graphic rendition" (ECMA-48).
    fn code(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Strong => 1,
            Self::Dim => 2,
            Self::Good => 32,
            Self::Busy => 36,
            Self::Bad => 31,
        }
    }
}

impl From<TaskStatus> for Tone {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Queued => Self::Plain,
            TaskStatus::Dispatching | TaskStatus::Running => Self::Busy,
            TaskStatus::Completed => Self::Good,
            TaskStatus::Failed | TaskStatus::DependencyFailed => Self::Bad,
            TaskStatus::Cancelled => Self::Dim,
        }
    }
}

impl From<RunStatus> for Tone {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Plain,
            RunStatus::Running | RunStatus::Canceling => Self::Busy,
            RunStatus::Completed => Self::Good,
            RunStatus::Failed => Self::Bad,
            RunStatus::Cancelled => Self::Dim,
        }
    }
}

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Styled(Vec<(Tone, String)>);

impl Styled {
    pub fn new(tone: Tone, text: &str) -> Self {
        Self::default().with(tone, text)
    }

    pub fn with(mut self, tone: Tone, text: &str) -> Self {
        // Spaces at the ends separate the parts of a line.
        let text = if text.contains(['\n', '\t']) { inline(text) } else { text.to_owned() };
        self.0.push((tone, clean(&text).into_owned()));
        self
    }

    /// The line, with colours if `coloured`, of at most `columns` columns.
    pub fn render(&self, columns: Option<usize>, coloured: bool) -> String {
        let mut left = columns.unwrap_or(usize::MAX);
        let mut out = String::new();
        // Blanks at the end are no text that would have to be cut.
        let end = self.0.iter().rposition(|(_, text)| !text.trim().is_empty()).map_or(0, |last| last + 1);
        for (at, (tone, text)) in self.0.iter().enumerate().take(end) {
            let text = cut(if at + 1 == end { text.trim_end() } else { text }, left);
            left = left.saturating_sub(text.width());
            if coloured && *tone != Tone::Plain && !text.trim().is_empty() {
                out.push_str(&format!("\x1b[{}m{text}\x1b[0m", tone.code()));
            } else {
                out.push_str(&text);
            }
        }
        out.trim_end().to_owned()
    }
}

/// The text if it has at most this many columns, otherwise its beginning and `…`.
pub fn cut(text: &str, columns: usize) -> String {
    let Some(most) = columns.checked_sub(1).filter(|_| text.width() > columns) else {
        return if columns == 0 { String::new() } else { text.to_owned() };
    };
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= most
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// The same for ids, whose ends differ: the beginning, `…` and the end.
pub fn cut_middle(text: &str, columns: usize) -> String {
    if text.width() <= columns || columns < 3 {
        return cut(text, columns);
    }
    let end = (columns - 1) / 2;
    let rest: String = text.chars().skip(text.chars().count().saturating_sub(end)).collect();
    cut(text, columns - end) + &rest
}

/// Breaks a text into lines of at most this many columns, between words where possible.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let fits = |line: &String| line.width() + 1 + word.width() <= columns;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(cut(word, columns.max(1))),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns_and_not_by_characters() {
        assert_eq!(cut("hello", 5), "hello");
        assert_eq!(cut("hello", 4), "hel…");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut_middle("01a20224-f47c-7000", 9), "01a2…7000");
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn only_tones_control_the_terminal() {
        let line = Styled::new(Tone::Bad, "fai\x1bled").with(Tone::Plain, "  and more");
        assert_eq!(line.render(None, false), "fai\u{fffd}led  and more");
        assert_eq!(line.render(None, true), "\x1b[31mfai\u{fffd}led\x1b[0m  and more");
        assert_eq!(line.render(Some(6), false), "fai\u{fffd}l…");
    }
}
