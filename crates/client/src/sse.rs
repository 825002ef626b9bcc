//! A parser of Server-Sent Events that accepts chunks of any size (WHATWG HTML, section 9.2.6).

use std::collections::VecDeque;
use std::time::Duration;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `message` when the stream does not set a type.
    pub name: String,
    /// The id to resume after. Events without an id do not change the resume point.
    pub id: Option<String>,
    pub data: String,
}

/// An event or a line of the stream is longer than [`Reader::LONGEST`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Turns chunks of bytes into events.
#[derive(Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    /// The last byte was a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    name: String,
    data: String,
    id: Option<String>,
    size: usize,
    ready: VecDeque<Event>,
    /// The pause that the service requests before a reconnect.
    pub(crate) reconnect: Option<Duration>,
}

/// Parses the events of a recorded stream from its chunks. `None` when the client would stop reading the stream.
pub fn read_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<Event>> {
    let mut reader = Reader::default();
    for piece in pieces {
        reader.push(piece).ok()?;
    }
    Some(reader.ready.into())
}

impl Reader {
    /// Longer than any event of the service.
    const LONGEST: usize = 32 * 1024 * 1024;

    /// Resets the parser for a new connection. Only the reconnect pause is kept.
    pub(crate) fn for_reconnect(reconnect: Option<Duration>) -> Self {
        Self { reconnect, ..Self::default() }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<(), TooLong> {
        for &byte in chunk {
            let line_feed_of_return = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                b'\n' if line_feed_of_return => {}
                b'\n' | b'\r' => self.end_line(),
                _ => self.line.push(byte),
            }
            if self.size + self.line.len() > Self::LONGEST {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Events that came by other calls, to be given next.
    pub(crate) fn put(&mut self, events: Vec<Event>) {
        self.ready.extend(events);
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.dispatch();
        }
        self.size += line.len();
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => self.reconnect = value.parse().ok().map(Duration::from_millis).or(self.reconnect),
            // A comment (empty field name) or a field of a later version.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        self.size = 0;
        let (name, mut data, id) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data), self.id.take());
        if data.pop().is_none() {
            return;
        }
        let name = if name.is_empty() { "message".to_owned() } else { name };
        self.ready.push_back(Event { name, id, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<Event> {
        let mut reader = Reader::default();
        for chunk in chunks {
            reader.push(chunk).unwrap();
        }
        std::iter::from_fn(|| reader.pop()).collect()
    }

    fn event(name: &str, id: Option<&str>, data: &str) -> Event {
        Event { name: name.to_owned(), id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn reads_fields_comments_and_several_lines() {
        let text = b": hello\r\nretry: 250\n\nid: 7\nevent: session\ndata: a\ndata:b\n\ndata\n\nevent: lost\n\n";
        assert_eq!(read(&[text]), [event("session", Some("7"), "a\nb"), event("message", None, "")]);
    }

    #[test]
    fn an_unfinished_event_is_not_an_event() {
        assert_eq!(read(&[b"id: 1\ndata: x\n"]), []);
    }

    #[test]
    fn endless_lines_are_refused() {
        let mut reader = Reader::default();
        let megabyte = vec![b'x'; 1024 * 1024];
        assert!((0..40).any(|_| reader.push(&megabyte) == Err(TooLong)));
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(cuts in proptest::collection::vec(0usize..60, 0..6)) {
            let text = "id: 1\r\nevent: ä\r\ndata: 🙂🙂\r\n\r\nid: 2\ndata: b\r\rdata: c\n\n".as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&chunks), vec![event("ä", Some("1"), "🙂🙂"), event("message", Some("2"), "b"), event("message", None, "c")]);
        }
    }
}
