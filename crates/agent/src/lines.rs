//! Splits an agent's output into lines, and never keeps more than one line of a bounded length.

/// The bytes of a line that is read. A longer one is dropped.
pub const LONGEST: usize = 16 << 20;

/// A line of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its line end. Bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// The length in bytes of a line that was too long to be read.
    Overlong(u64),
}

/// The unfinished last line.
#[derive(Clone, Debug)]
pub struct Lines {
    rest: Vec<u8>,
    /// The bytes of this line that were dropped.
    dropped: u64,
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
        Self { rest: Vec::new(), dropped: 0, longest }
    }

    /// Takes the next bytes and passes on the lines that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = bytes.split_at(end);
            self.keep(line);
            each(self.complete());
            bytes = after.get(1..).unwrap_or_default();
        }
        self.keep(bytes);
    }

    /// The output has ended. What is left is its last line.
    pub fn finish(&mut self, mut each: impl FnMut(Line)) {
        if !self.rest.is_empty() || self.dropped > 0 {
            each(self.complete());
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.dropped > 0 || self.rest.len() + bytes.len() > self.longest {
            let lost = std::mem::take(&mut self.rest).len() + bytes.len();
            self.dropped = self.dropped.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX));
        } else {
            self.rest.extend_from_slice(bytes);
        }
    }

    fn complete(&mut self) -> Line {
        let mut line = std::mem::take(&mut self.rest);
        match std::mem::take(&mut self.dropped) {
            0 => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                Line::Text(String::from_utf8_lossy(&line).into_owned())
            }
            bytes => Line::Overlong(bytes),
        }
    }
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

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_come(lines in proptest::collection::vec("[a😀é]{0,9}", 0..20), size in 1usize..9) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let wanted: Vec<Line> = lines.into_iter().map(Line::Text).collect();
            prop_assert_eq!(cut_into(text.as_bytes(), size, LONGEST), wanted);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let text = [vec![b'x'; 50 << 20], b"\n{}\r\nlast".to_vec()].concat();
        let wanted = [Line::Overlong(50 << 20), Line::Text("{}".into()), Line::Text("last".into())];
        assert_eq!(cut_into(&text, 1 << 16, LONGEST), wanted);
        assert_eq!(cut_into(b"a\xff\n", 1, 9), [Line::Text("a\u{fffd}".into())]);
        assert_eq!(cut_into(b"12345\n123456\n", 2, 5), [Line::Text("12345".into()), Line::Overlong(6)]);
    }
}
