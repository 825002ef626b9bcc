//! Lines that fit: styled text broken by the columns that it takes in a terminal.

use ratatui_core::buffer::CellWidth;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

/// The characters of one grapheme that are drawn. More marks on one letter would spill over the lines around it.
const MOST_MARKS: usize = 8;

/// How a text is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Between words, and in words that are longer than a line.
    Words,
    /// Wherever the line is full, as code is.
    Anywhere,
}

/// Breaks one line of text. `first` stands before the first line and `rest` before the others.
pub(crate) fn wrap(text: &[Span<'_>], width: u16, at: Break, first: &Span<'_>, rest: &Span<'_>) -> Vec<Line<'static>> {
    let mut wrapper = Wrapper::new(width, first, rest);
    for span in text {
        for grapheme in span.styled_graphemes(Style::new()) {
            let symbol = drawn(grapheme.symbol);
            for (symbol, columns) in symbol {
                wrapper.push(&symbol, columns, grapheme.style, at);
            }
        }
    }
    wrapper.finish()
}

/// The same without anything before the lines.
pub(crate) fn plain(text: &str, style: Style, width: u16) -> Vec<Line<'static>> {
    let nothing = Span::raw("");
    text.split('\n')
        .flat_map(|line| wrap(&[Span::styled(line, style)], width, Break::Words, &nothing, &nothing))
        .collect()
}

/// The columns of a text.
pub(crate) fn columns(text: &str) -> u16 {
    let graphemes = Span::raw(text);
    let sum = graphemes.styled_graphemes(Style::new()).map(|one| usize::from(one.symbol.cell_width())).sum::<usize>();
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// The beginning of a text that fits, with "…" when something is missing.
pub(crate) fn fit(text: &str, width: u16, more: &str) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(columns(more));
    let (mut kept, mut used) = (String::new(), 0);
    for grapheme in Span::raw(text).styled_graphemes(Style::new()) {
        used += grapheme.symbol.cell_width();
        if used > room {
            break;
        }
        kept.push_str(grapheme.symbol);
    }
    kept.push_str(more);
    kept
}

/// How a grapheme is drawn, and its columns. A grapheme without a width is written out.
fn drawn(symbol: &str) -> Vec<(String, u16)> {
    if symbol.len() == 1 {
        return vec![(symbol.to_owned(), 1)];
    }
    let shown = match symbol.char_indices().nth(MOST_MARKS) {
        Some((end, _)) => symbol.get(..end).unwrap_or_default(),
        None => symbol,
    };
    let mut all = match shown.cell_width() {
        0 => shown.chars().flat_map(char::escape_unicode).map(|letter| (letter.to_string(), 1)).collect(),
        columns => vec![(shown.to_owned(), columns)],
    };
    if shown.len() < symbol.len() {
        all.push(("…".to_owned(), 1));
    }
    all
}

/// A line that is being filled.
struct Wrapper {
    width: u16,
    rest: Span<'static>,
    lines: Vec<Line<'static>>,
    line: Vec<Span<'static>>,
    /// The columns of the line, and of what stands before it.
    used: u16,
    before: u16,
    word: Vec<Span<'static>>,
    word_columns: u16,
}

impl Wrapper {
    fn new(width: u16, first: &Span<'_>, rest: &Span<'_>) -> Self {
        let owned = |span: &Span<'_>| Span::styled(span.content.to_string(), span.style);
        let before = columns(&first.content);
        Self {
            width: width.max(before.max(columns(&rest.content)) + 2),
            rest: owned(rest),
            lines: Vec::new(),
            line: vec![owned(first)],
            used: before,
            before,
            word: Vec::new(),
            word_columns: 0,
        }
    }

    fn push(&mut self, symbol: &str, columns: u16, style: Style, at: Break) {
        if at == Break::Anywhere {
            if self.used + columns > self.width {
                self.next_line();
            }
            self.used += columns;
            append(&mut self.line, symbol, style);
            return;
        }
        if symbol == " " {
            self.end_word();
            if self.used < self.width {
                self.used += 1;
                append(&mut self.line, symbol, style);
            } else {
                self.next_line();
            }
            return;
        }
        if self.before + self.word_columns + columns > self.width {
            self.end_word();
        }
        append(&mut self.word, symbol, style);
        self.word_columns += columns;
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        if self.used + self.word_columns > self.width && self.used > self.before {
            self.next_line();
        }
        for span in self.word.drain(..) {
            append(&mut self.line, &span.content, span.style);
        }
        self.used += self.word_columns;
        self.word_columns = 0;
    }

    fn next_line(&mut self) {
        self.before = columns(&self.rest.content);
        self.used = self.before;
        let line = std::mem::replace(&mut self.line, vec![self.rest.clone()]);
        self.lines.push(Line::from(line));
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.end_word();
        self.lines.push(Line::from(self.line));
        self.lines
    }
}

fn append(spans: &mut Vec<Span<'static>>, symbol: &str, style: Style) {
    match spans.last_mut().filter(|last| last.style == style) {
        Some(last) => last.content.to_mut().push_str(symbol),
        None => spans.push(Span::styled(symbol.to_owned(), style)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, width: u16, at: Break) -> Vec<String> {
        let lines = wrap(&[Span::raw(text)], width, at, &Span::raw("- "), &Span::raw("  "));
        lines.iter().map(Line::to_string).collect()
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(lines("one two three", 9, Break::Words), ["- one two", "  three"]);
        assert_eq!(lines("a abcdefghij", 7, Break::Words), ["- a ", "  abcde", "  fghij"]);
        assert_eq!(lines("ab cd", 6, Break::Anywhere), ["- ab c", "  d"]);
        assert_eq!(lines("", 9, Break::Words), ["- "]);
    }

    #[test]
    fn columns_count_and_not_characters() {
        assert_eq!(lines("漢字漢字", 6, Break::Words), ["- 漢字", "  漢字"]);
        assert_eq!(lines("e\u{301}e\u{301}e\u{301}", 4, Break::Anywhere), ["- e\u{301}e\u{301}", "  e\u{301}"]);
        assert_eq!(fit("漢字漢字", 5, "…"), "漢字…");
    }

    #[test]
    fn marks_do_not_pile_up_and_none_is_lost() {
        let tower = format!("a{}", "\u{301}".repeat(1_000));
        assert_eq!(lines(&tower, 9, Break::Words), [format!("- a{}…", "\u{301}".repeat(7))]);
        assert_eq!(lines("\u{301}x", 20, Break::Words), ["- \\u{301}x"]);
    }
}
