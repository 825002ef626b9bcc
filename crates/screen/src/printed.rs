//! What agents write, for a terminal without a screen: printed as it comes, and never drawn again.

use crossterm::style::ContentStyle;
use ratatui_core::style::Style;
use ratatui_core::text::Line;
use ratatui_crossterm::IntoCrossterm;

use crate::about::Look;
use crate::clean::{output, readable};
use crate::markdown::{self, Fence};
use crate::paint::Paint;
use crate::table;

/// The lines of a table that are held until it is whole.
const MOST_HELD: usize = 500;

/// Turns a text that comes in pieces into whole lines. Only styles control the terminal.
#[derive(Debug)]
pub struct Printed {
    paint: Paint,
    width: u16,
    is_plain: fn(&str) -> bool,
    fence: Option<Fence>,
    /// The beginning of a line.
    begun: String,
    /// Lines that may be a table.
    table: Vec<String>,
}

impl Printed {
    /// `width`: of the terminal, in columns. Plain lines stay as they are.
    pub fn new(look: Look, width: u16, is_plain: fn(&str) -> bool) -> Self {
        Self { paint: Paint(look), width, is_plain, fence: None, begun: String::new(), table: Vec::new() }
    }

    /// The lines that can be printed now.
    pub fn add(&mut self, text: &str) -> String {
        let mut out = String::new();
        for piece in text.split_inclusive('\n') {
            self.begun.push_str(piece);
            if let Some(line) = self.begun.strip_suffix('\n') {
                let line = line.to_owned();
                self.begun.clear();
                self.line(&line, &mut out);
            }
        }
        out
    }

    /// What was held back, with the end of its last line.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if !self.begun.is_empty() {
            let line = std::mem::take(&mut self.begun);
            self.line(&line, &mut out);
        }
        self.end_table(&mut out);
        out
    }

    fn line(&mut self, line: &str, out: &mut String) {
        if (self.is_plain)(line) {
            self.end_table(out);
            // A block of code does not continue after another author's text.
            self.fence = None;
            out.push_str(&output(line));
            out.push('\n');
            return;
        }
        let line = readable(line);
        if self.fence.is_none() && table::is_row(&line) && self.table.len() < MOST_HELD {
            self.table.push(line);
            return;
        }
        self.end_table(out);
        self.draw(&line, out);
    }

    fn end_table(&mut self, out: &mut String) {
        if !self.table.is_empty() {
            let lines = std::mem::take(&mut self.table).join("\n");
            self.draw(&lines, out);
        }
    }

    fn draw(&mut self, text: &str, out: &mut String) {
        for line in markdown::lines_within(&mut self.fence, text, Style::new(), self.width, self.paint) {
            out.push_str(styled(&line, self.paint).trim_end_matches(' '));
            out.push('\n');
        }
    }
}

/// The line with its styles as sequences of the terminal (ECMA-48, "select graphic rendition"), or without any.
fn styled(line: &Line<'_>, paint: Paint) -> String {
    if !paint.0.colour {
        return line.to_string();
    }
    let spans = line.spans.iter().map(|span| {
        let style: ContentStyle = line.style.patch(span.style).into_crossterm();
        if style == ContentStyle::default() { span.content.to_string() } else { style.apply(&span.content).to_string() }
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look { colour: false, unicode: true };
    const TEXT: &str = "# Done\nIt **works**, see [the docs](https://a.example).\n\n| Name | Says |\n|---|---|\n| a | `b` |\n\
                        After\n```rust\nlet *a = **b;\n| no | table |\n```\n- one\n";

    fn printed(text: &str, look: Look, width: u16) -> String {
        let mut printed = Printed::new(look, width, |_| false);
        let mut out = printed.add(text.trim_end());
        out.push_str(&printed.finish());
        out
    }

    #[test]
    fn a_text_looks_the_same_however_it_comes() {
        let expected = "Done\nIt works, see the docs (https://a.example).\n\nName  Says\n────  ────\na     b\nAfter\n  rust\n  \
                        let *a = **b;\n  | no | table |\n• one\n";
        assert_eq!(printed(TEXT, PLAIN, 60), expected);
        let letters: Vec<char> = TEXT.chars().collect();
        for size in [1, 2, 7, 30] {
            let mut whole = Printed::new(PLAIN, 60, |_| false);
            let mut out: String =
                letters.chunks(size).map(|piece| whole.add(&piece.iter().collect::<String>())).collect();
            out.push_str(&whole.finish());
            assert_eq!(out, expected, "{size}");
        }
    }

    #[test]
    fn only_styles_control_the_terminal() {
        let look = Look { colour: true, unicode: true };
        assert_eq!(
            printed("a **b**\u{1b}[2J\n\n`c`", look, 60),
            "a \u{1b}[1mb\u{1b}[0m\\u{1b}[2J\n\n\u{1b}[38;5;6mc\u{1b}[39m\n"
        );
    }

    #[test]
    fn plain_lines_stay_as_they_are_and_in_their_place() {
        let mut printed = Printed::new(PLAIN, 60, |line| line.starts_with("[Bash] "));
        let out = printed.add("| a\n**begun\n```\n[Bash] ls *.rs *.md \u{1b}[31mred\u{1b}[0m\n*end*\n");
        assert_eq!(out, "| a\n**begun\n[Bash] ls *.rs *.md red\nend\n");
    }
}
