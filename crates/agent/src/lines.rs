//! Splits an agent's output into lines. Keeps at most one line, and never splits a character.

/// The bytes of a line that is read as a message: enough for an answer of 8 MiB, which is as much output as the server stores by default,
/// when JSON escapes most of it.
pub const LONGEST: usize = 32 << 20;

/// The bytes of a line that is no message. Output without line ends cannot fill the memory.
const LONGEST_TEXT: usize = 64 << 10;

/// A line of the output, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its line end. Bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// A piece of a line that is too long to be read, as it comes. The last one has the line end.
    Piece(String),
    /// That line has ended. Its length in bytes.
    Overlong(u64),
}

/// The unfinished last line.
#[derive(Clone, Debug)]
pub struct Lines {
    rest: Vec<u8>,
    /// The bytes of this line that were passed on in pieces.
    passed: u64,
    longest: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self::bounded(LONGEST)
    }
}

impl Lines {
    /// With lines of at most `longest` bytes.
    pub fn bounded(longest: usize) -> Self {
        Self { rest: Vec::new(), passed: 0, longest }
    }

    /// Takes the next bytes and passes on what they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = bytes.split_at(end);
            self.rest.extend_from_slice(line);
            self.complete(&mut each);
            bytes = after.get(1..).unwrap_or_default();
        }
        self.rest.extend_from_slice(bytes);
        if self.is_overlong() {
            let tail = self.rest.split_off(whole_characters(&self.rest));
            let piece = std::mem::replace(&mut self.rest, tail);
            self.passed = self.passed.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            each(Line::Piece(text(&piece)));
        }
    }

    /// The output has ended. What is left is its last line.
    pub fn finish(&mut self, mut each: impl FnMut(Line)) {
        if !self.rest.is_empty() || self.passed > 0 {
            self.complete(&mut each);
        }
    }

    fn is_overlong(&self) -> bool {
        let is_message = self.rest.first() == Some(&b'{');
        self.passed > 0 || self.rest.len() > self.longest.min(if is_message { LONGEST } else { LONGEST_TEXT })
    }

    fn complete(&mut self, each: &mut impl FnMut(Line)) {
        let is_overlong = self.is_overlong();
        let mut line = std::mem::take(&mut self.rest);
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX).saturating_add(std::mem::take(&mut self.passed));
        if is_overlong {
            line.push(b'\n');
            each(Line::Piece(text(&line)));
            return each(Line::Overlong(length));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        each(Line::Text(text(&line)));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number of these bytes that end with a whole character.
pub fn whole_characters(bytes: &[u8]) -> usize {
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
    use proptest::prelude::*;

    use super::*;

    fn cut_into(text: &[u8], size: usize, longest: usize) -> Vec<Line> {
        let (mut lines, mut found) = (Lines::bounded(longest), Vec::new());
        text.chunks(size).for_each(|chunk| lines.feed(chunk, |line| found.push(line)));
        lines.finish(|line| found.push(line));
        found
    }

    /// What the pieces say, and all else.
    fn joined(lines: Vec<Line>) -> (String, Vec<Line>) {
        let (pieces, rest): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| matches!(line, Line::Piece(_)));
        let text = |piece: Line| if let Line::Piece(text) = piece { text } else { String::new() };
        (pieces.into_iter().map(text).collect(), rest)
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_come(lines in proptest::collection::vec("[a😀é]{0,9}", 0..20), size in 1usize..9) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let wanted: Vec<Line> = lines.into_iter().map(Line::Text).collect();
            prop_assert_eq!(cut_into(text.as_bytes(), size, LONGEST), wanted);
        }

        #[test]
        fn a_line_that_is_too_long_keeps_its_characters(line in "[a😀é]{30,60}", size in 1usize..7) {
            let (pieces, rest) = joined(cut_into(format!("{line}\nnext\n").as_bytes(), size, 16));
            prop_assert_eq!(rest, [Line::Overlong(line.len() as u64), Line::Text("next".to_owned())]);
            prop_assert_eq!(pieces, format!("{line}\n"));
        }
    }

    #[test]
    fn a_line_that_is_too_long_comes_in_pieces_and_the_next_one_is_read() {
        let text = [vec![b'x'; 50 << 20], b"\n{}\r\nlast".to_vec()].concat();
        let found = cut_into(&text, 1 << 16, LONGEST);
        let is_short = |line: &Line| !matches!(line, Line::Piece(piece) if piece.len() > LONGEST_TEXT + (1 << 16));
        assert!(found.len() > 100 && found.iter().all(is_short));
        let (pieces, rest) = joined(found);
        assert_eq!(pieces.len(), (50 << 20) + 1);
        assert_eq!(rest, [Line::Overlong(50 << 20), Line::Text("{}".into()), Line::Text("last".into())]);
        let message = [vec![b'{'], vec![b'x'; 5 << 20], vec![b'\n']].concat();
        assert!(matches!(cut_into(&message, 1 << 16, LONGEST).as_slice(), [Line::Text(_)]), "a message may be long");
        assert_eq!(cut_into(b"a\xff\r\n", 1, 9), [Line::Text("a\u{fffd}".into())]);
        let (_, rest) = joined(cut_into(b"12345\n123456\n", 2, 5));
        assert_eq!(rest, [Line::Text("12345".into()), Line::Overlong(6)]);
    }
}
