//! What the clients saw. A request whose answer was lost is neither a success nor a failure: it may have happened. Only what
//! was answered binds; [`crate::check`] says whether it can all be true at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Since the beginning of the story.
pub(crate) type At = Duration;

/// When something was asked for, and when the answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) asked: At,
    pub(crate) answered: At,
}

/// One message as a client was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) session: String,
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) local_id: String,
    pub(crate) digest: [u8; 32],
}

impl Told {
    pub(crate) fn from_json(session: &str, message: &Value) -> Option<Self> {
        Some(Self {
            session: session.to_owned(),
            id: message.get("id")?.as_str()?.to_owned(),
            seq: message.get("seq")?.as_u64()?,
            local_id: message.get("localId")?.as_str()?.to_owned(),
            digest: Sha256::digest(message.get("content")?.as_str()?).into(),
        })
    }

    /// The messages of a page.
    pub(crate) fn page(session: &str, page: &Value) -> Vec<Self> {
        let messages = page.get("messages").and_then(Value::as_array);
        messages.into_iter().flatten().filter_map(|message| Self::from_json(session, message)).collect()
    }
}

/// One public link, from its making to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) max_uses: usize,
    pub(crate) viewings: Vec<When>,
    /// Whoever asks later than this must not get in: the answer to its deletion or replacement, or its expiry and a second.
    pub(crate) dead_from: Option<At>,
}

/// What a guest may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Nothing,
    View,
    Edit,
}

/// The owner set what the guest may do. The owner does one thing after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) level: Level,
    pub(crate) asked: At,
    /// Nothing when the answer was lost: it may have happened, and at any time.
    pub(crate) answered: Option<At>,
}

/// The guest did something that needs at least this level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) needs: Level,
    pub(crate) when: When,
}

/// What became of one guest in one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    pub(crate) changes: Vec<Change>,
    pub(crate) entries: Vec<Entry>,
}

/// Everything that was answered.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Appends that were acknowledged, replays among them.
    pub(crate) acknowledged: Vec<Told>,
    /// For each reader, in the order in which it saw them: from the first message on.
    pub(crate) forwards: Vec<Vec<Told>>,
    /// For each walk from the newest page to the first message.
    pub(crate) backwards: Vec<Vec<Told>>,
    /// Version of the metadata → the values whose PATCH was answered with it.
    pub(crate) versions: BTreeMap<u64, Vec<String>>,
    /// By their tokens.
    pub(crate) links: BTreeMap<String, Link>,
    pub(crate) shares: Vec<Share>,
    /// Answers that nobody may get.
    pub(crate) strange: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) lost: u64,
}

/// A history that is also written to a file, line by line, for whoever has to find out what happened.
#[derive(Debug)]
pub(crate) struct Chronicle {
    begun: Instant,
    file: BufWriter<File>,
    pub(crate) history: History,
}

impl Chronicle {
    pub(crate) fn begin(path: &Path) -> Result<Self> {
        Ok(Self { begun: Instant::now(), file: BufWriter::new(File::create(path)?), history: History::default() })
    }

    pub(crate) fn now(&self) -> At {
        self.begun.elapsed()
    }

    /// One line: who did what, and what came of it.
    pub(crate) fn write(&mut self, when: When, who: &str, what: &str, outcome: &Value) {
        let line = json!({
            "asked_ms": when.asked.as_millis() as u64, "answered_ms": when.answered.as_millis() as u64,
            "who": who, "what": what, "outcome": outcome,
        });
        // A full disk will be told by the services; the checker works on what is in memory.
        let _ = writeln!(self.file, "{line}");
    }

    /// Writes the last lines, and gives what was answered.
    pub(crate) fn end(&mut self) -> History {
        let _ = self.file.flush();
        std::mem::take(&mut self.history)
    }
}
