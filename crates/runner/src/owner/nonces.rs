//! The tasks that this machine has taken, so that a server cannot have one done again under another name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_process::disk::{on_disk, replace};
use ensemble_types::changes::{OrderOutcome, OrderResult};
use ensemble_types::ids::TaskId;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::check::{CLOCKS, Refused};

/// What was known when the program started, and what has come since, one entry a line.
const FILE: &str = "tasks.json";
const LOG: &str = "tasks.log";
/// Only devices of the owner add any. One run has 10,000 tasks at most.
const MOST: usize = 50_000;
/// Beyond it, for what people say about tasks that there are.
const MOST_ORDERS: usize = 1_000;
/// A clock that is set back by less does not bring an expired task back.
const KEPT_LONGER: Duration = Duration::from_secs(24 * 3_600);
/// With fewer, tasks are remembered longer.
const ROOM: usize = 2_000;
/// Of the files in the way of an order.
const MOST_FILES: usize = 16;
const KEPT_FOR_MESSAGES: Duration = Duration::from_secs(30 * 24 * 3_600);
/// 16 bytes in base64url.
const NONCE_LENGTH: usize = 22;

/// What is done under one task id only.
#[derive(Clone, Copy)]
pub(super) struct Once<'a> {
    pub(super) nonce: &'a str,
    /// The digest of what was signed.
    pub(super) digest: &'a str,
    pub(super) at: Timestamp,
    pub(super) expires: Timestamp,
    /// It is about a task that there is. A task id has one task.
    pub(super) is_order: bool,
}

pub(super) struct Nonces {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[derive(Serialize, Deserialize)]
struct Known {
    /// Tasks from before are not done: what was taken before is not known.
    since: Timestamp,
    taken: BTreeMap<String, Taken>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Taken {
    task: TaskId,
    /// SHA-256 of what was signed, base64url.
    digest: String,
    expires: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_order: bool,
    /// The provider's conversation in which this machine has worked on the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    /// What came of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<OrderResult>,
}

/// A line of the log.
#[derive(Serialize, Deserialize)]
struct Line {
    nonce: String,
    taken: Taken,
}

impl Known {
    /// The task itself that was taken under this id.
    fn task(&self, id: TaskId) -> Option<(&String, &Taken)> {
        self.taken.iter().find(|(_, taken)| taken.task == id && !taken.is_order)
    }
}

impl Nonces {
    /// Reads what is known in this folder. Without a file it begins now, or before all tasks where no host has worked yet.
    pub(super) fn open(folder: &Path, now: Timestamp) -> io::Result<Self> {
        let path = folder.join(FILE);
        let mut known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let since = if is_unused(folder)? { Timestamp::from_unix_seconds(0) } else { now };
                Known { since, taken: BTreeMap::new() }
            }
            Err(error) => return Err(error),
        };
        let lines = match fs::read_to_string(folder.join(LOG)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            lines => lines?,
        };
        // A line that was not written to its end was not answered.
        let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let Line { nonce, taken } = serde_json::from_str(line).map_err(io::Error::other)?;
            known.taken.insert(nonce, taken);
        }
        // What is remembered of a task lets its owner say more to it, as long as there is room.
        let kept = if known.taken.len() < ROOM { KEPT_FOR_MESSAGES } else { KEPT_LONGER };
        known.taken.retain(|_, taken| taken.expires.plus(kept) > now);
        replace(&path, &known)?;
        match fs::remove_file(folder.join(LOG)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { path, known: Arc::new(Mutex::new(known)) })
    }

    /// Whether this task was taken under this id, as it is.
    pub(super) async fn was_taken(&self, nonce: &str, id: TaskId, digest: &str) -> bool {
        let known = self.known.lock().await;
        known.taken.get(nonce).is_some_and(|taken| taken.task == id && !taken.is_order && taken.digest == digest)
    }

    /// The provider's conversation in which this machine has worked on the task.
    pub(super) async fn conversation(&self, id: TaskId) -> Option<String> {
        self.known.lock().await.task(id).and_then(|(_, taken)| taken.conversation.clone())
    }

    /// Remembers that conversation.
    pub(super) async fn worked_in(&self, id: TaskId, conversation: &str) -> io::Result<()> {
        let mut known = self.known.lock().await;
        let Some((nonce, taken)) = known.task(id) else { return Ok(()) };
        if taken.conversation.as_deref() == Some(conversation) {
            return Ok(());
        }
        let taken = Taken { conversation: Some(conversation.to_owned()), ..taken.clone() };
        let nonce = nonce.clone();
        self.write(&mut known, nonce, taken).await
    }

    /// What came of the order with this nonce, when it was carried out.
    pub(super) async fn result(&self, nonce: &str) -> Option<OrderResult> {
        self.known.lock().await.taken.get(nonce)?.result.clone()
    }

    /// Remembers that. An order that failed has changed nothing, and may be tried again.
    pub(super) async fn carried_out(&self, nonce: &str, result: &OrderResult) -> io::Result<()> {
        if result.outcome == OrderOutcome::Failed {
            return Ok(());
        }
        let mut known = self.known.lock().await;
        let Some(taken) = known.taken.get(nonce).filter(|taken| taken.is_order) else { return Ok(()) };
        let files = result.files.iter().take(MOST_FILES).cloned().collect();
        let taken = Taken { result: Some(OrderResult { files, ..result.clone() }), ..taken.clone() };
        self.write(&mut known, nonce.to_owned(), taken).await
    }

    /// Takes a task under this id. It is on disk when this returns.
    pub(super) async fn take(&self, once: &Once<'_>, id: TaskId, now: Timestamp) -> Result<(), Refused> {
        let is_nonce = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if once.nonce.len() != NONCE_LENGTH || !once.nonce.chars().all(is_nonce) {
            return Err(Refused::not_signed("its nonce is not 16 bytes"));
        }
        let mut known = self.known.lock().await;
        if once.at.plus(CLOCKS) < known.since {
            return Err(Refused::expired("it is from before this machine knows which tasks it has taken"));
        }
        match known.taken.get(once.nonce) {
            Some(taken) if taken.task == id && taken.is_order == once.is_order && taken.digest == once.digest => {
                return Ok(());
            }
            Some(_) => return Err(Refused::not_signed("it was taken before, as another task")),
            None if !once.is_order && known.task(id).is_some() => {
                return Err(Refused::not_signed("another task was taken under this id"));
            }
            None => {}
        }
        let most = if once.is_order { MOST + MOST_ORDERS } else { MOST };
        if known.taken.len() >= ROOM {
            known.taken.retain(|_, taken| taken.expires.plus(KEPT_LONGER) > now);
        }
        if known.taken.len() >= most {
            return Err(Refused::busy(format!("{most} tasks are remembered, and no more can be")));
        }
        let digest = once.digest.to_owned();
        let (expires, is_order) = (once.expires, once.is_order);
        let taken = Taken { task: id, digest, expires, is_order, conversation: None, result: None };
        let written = self.write(&mut known, once.nonce.to_owned(), taken).await;
        written.map_err(|error| Refused::busy(format!("{}: {error}", self.path.display())))
    }

    /// Adds a line to the log. The next start rewrites the file.
    async fn write(&self, known: &mut Known, nonce: String, taken: Taken) -> io::Result<()> {
        let line = Line { nonce, taken };
        let mut text = serde_json::to_vec(&line).map_err(io::Error::other)?;
        text.push(b'\n');
        let path = self.path.with_file_name(LOG);
        on_disk(move || append(&path, &text)).await?;
        known.taken.insert(line.nonce, line.taken);
        Ok(())
    }
}

/// Adds whole lines, or nothing: what a full disk has cut is taken away again.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let before = file.metadata()?.len();
    if let Err(error) = file.write_all(text).and_then(|()| file.sync_all()) {
        let _ = file.set_len(before);
        return Err(error);
    }
    match path.parent() {
        Some(parent) if is_new => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

/// Whether no host has left anything in this folder, so that none has taken a task.
fn is_unused(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != "lock" && name != "sessions" {
            return Ok(false);
        }
    }
    Ok(true)
}
