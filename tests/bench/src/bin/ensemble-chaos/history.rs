//! What the clients observed. A request without a response is neither a success nor a failure, because it may have
//! taken effect. [`crate::check`] decides whether all responses are consistent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The time since the beginning of the scenario.
pub(crate) type At = Duration;

/// When a request was sent and when its response arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct When {
    pub(crate) sent: At,
    pub(crate) answered: At,
}

/// One message as a client received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) session: String,
    pub(crate) id: String,
    pub(crate) seq: u64,
    pub(crate) local_id: String,
    pub(crate) digest: [u8; 32],
}

impl Message {
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

/// One public link during its lifetime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) max_uses: usize,
    pub(crate) views: Vec<When>,
    /// A later view must fail. The time of the response to its deletion or replacement, or its expiry plus one second.
    pub(crate) dead_from: Option<At>,
}

/// The access level of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Nothing,
    View,
    Edit,
}

/// A change of the guest's level by the owner. The owner makes one change after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) level: Level,
    pub(crate) sent: At,
    /// `None` when the response was lost: the change may take effect at any time.
    pub(crate) answered: Option<At>,
}

/// A successful action of the guest that needs at least this level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) needs: Level,
    pub(crate) when: When,
}

/// The history of one guest in one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    pub(crate) changes: Vec<Change>,
    pub(crate) entries: Vec<Entry>,
}

/// All observations.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Acknowledged appends, including repetitions.
    pub(crate) acknowledged: Vec<Message>,
    /// For each reader: the messages in the order in which it saw them, from the first on.
    pub(crate) forwards: Vec<Vec<Message>>,
    /// For each walk: the messages from the newest page to the first message.
    pub(crate) backwards: Vec<Vec<Message>>,
    /// Version of the metadata → the values whose PATCH returned it.
    pub(crate) versions: BTreeMap<u64, Vec<String>>,
    /// Public links by their tokens.
    pub(crate) links: BTreeMap<String, Link>,
    pub(crate) shares: Vec<Share>,
    /// Responses that are never allowed.
    pub(crate) unexpected: Vec<String>,
    pub(crate) requests: u64,
    pub(crate) refused: u64,
    pub(crate) lost: u64,
}

/// A history that is also written to a file, one line per request, for the analysis of failures.
#[derive(Debug)]
pub(crate) struct HistoryLog {
    begun: Instant,
    file: BufWriter<File>,
    pub(crate) history: History,
}

impl HistoryLog {
    pub(crate) fn begin(path: &Path) -> Result<Self> {
        Ok(Self { begun: Instant::now(), file: BufWriter::new(File::create(path)?), history: History::default() })
    }

    pub(crate) fn now(&self) -> At {
        self.begun.elapsed()
    }

    /// Writes one line: the client, its request and the outcome.
    pub(crate) fn write(&mut self, when: When, who: &str, what: &str, outcome: &Value) {
        let line = json!({
            "sent_ms": when.sent.as_millis() as u64, "answered_ms": when.answered.as_millis() as u64,
            "who": who, "what": what, "outcome": outcome,
        });
        // The file is only for people. A full disk must not stop the checks.
        let _ = writeln!(self.file, "{line}");
    }

    /// Flushes the file and returns the history.
    pub(crate) fn end(&mut self) -> History {
        let _ = self.file.flush();
        std::mem::take(&mut self.history)
    }
}
