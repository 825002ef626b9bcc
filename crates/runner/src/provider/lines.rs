//! Splits a stream of bytes into lines. Keeps at most one line and never splits a character.

/// The longest event that is read as one: enough for an answer of 8 MiB, which is as much output as the server stores by
/// default, when JSON escapes most of it.
const LONGEST: usize = 32 << 20;

/// The longest line that is no event. A stream without line ends cannot fill the memory.
const LONGEST_TEXT: usize = 64 << 10;

/// A part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Line(String),
    /// A piece of a line that is too long to be read as one.
    Raw(String),
}

/// The unfinished last line of the stream.
#[derive(Debug)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    longest: usize,
    /// Whether the beginning of this line was passed on already.
    overlong: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self { rest: Vec::new(), longest: LONGEST, overlong: false }
    }
}

impl Lines {
    /// Reads the next bytes and passes on what they complete. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Piece)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = bytes.split_at(end);
            self.rest.extend_from_slice(line);
            each(self.complete());
            bytes = after.get(1..).unwrap_or_default();
        }
        self.rest.extend_from_slice(bytes);
        let is_event = self.rest.first() == Some(&b'{');
        if self.rest.len() > self.longest.min(if is_event { LONGEST } else { LONGEST_TEXT }) || self.overlong {
            let whole = whole_characters(&self.rest);
            let tail = self.rest.split_off(whole);
            let piece = std::mem::replace(&mut self.rest, tail);
            self.overlong = true;
            each(Piece::Raw(text(&piece)));
        }
    }

    /// Ends the stream. The rest is its last line.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Piece)) {
        if !self.rest.is_empty() {
            each(self.complete());
        }
    }

    fn complete(&mut self) -> Piece {
        let mut line = std::mem::take(&mut self.rest);
        if std::mem::take(&mut self.overlong) {
            line.push(b'\n');
            return Piece::Raw(text(&line));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Piece::Line(text(&line))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of these bytes that end with a whole character.
pub(crate) fn whole_characters(bytes: &[u8]) -> usize {
    let last_start = bytes.iter().rposition(|byte| byte & 0xC0 != 0x80);
    let Some(start) = last_start.filter(|start| bytes.len() - start < 4) else { return bytes.len() };
    let needed = match bytes.get(start) {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 1,
    };
    if bytes.len() - start < needed { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut_into(text: &[u8], sizes: &[usize], longest: usize) -> Vec<Piece> {
        let mut lines = Lines { longest, ..Lines::default() };
        let mut found = Vec::new();
        let mut rest = text;
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            lines.feed(chunk, |piece| found.push(piece));
            rest = after;
        }
        lines.finish(|piece| found.push(piece));
        found
    }

    proptest! {
        #[test]
        fn chunk_borders_do_not_matter(lines in proptest::collection::vec("[a😀é\u{10FFFF} ]{0,20}", 0..20),
                                       sizes in proptest::collection::vec(1usize..7, 1..5)) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let wanted: Vec<Piece> = lines.into_iter().map(Piece::Line).collect();
            prop_assert_eq!(cut_into(text.as_bytes(), &sizes, LONGEST), wanted);
        }

        #[test]
        fn an_overlong_line_keeps_its_characters(line in "[a😀é]{30,60}", sizes in proptest::collection::vec(1usize..7, 1..5)) {
            let pieces = cut_into(format!("{line}\nnext\n").as_bytes(), &sizes, 16);
            let raw: String = pieces.iter().filter_map(|piece| match piece {
                Piece::Raw(text) => Some(text.as_str()),
                Piece::Line(_) => None,
            }).collect();
            prop_assert_eq!(raw, format!("{line}\n"));
            prop_assert_eq!(pieces.last(), Some(&Piece::Line("next".to_owned())));
        }
    }

    #[test]
    fn only_an_event_may_be_long() {
        let line = |first: &str| format!("{first}{}\n", "x".repeat(5 << 20));
        assert!(matches!(cut_into(line("{").as_bytes(), &[1 << 16], LONGEST).as_slice(), [Piece::Line(_)]));
        let text = cut_into(line("x").as_bytes(), &[1 << 16], LONGEST);
        assert!(text.len() > 10 && text.iter().all(|piece| matches!(piece, Piece::Raw(_))));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(
            cut_into(b"a\xFFb\r\nc", &[1], LONGEST),
            [Piece::Line("a\u{fffd}b".into()), Piece::Line("c".into())]
        );
    }
}
