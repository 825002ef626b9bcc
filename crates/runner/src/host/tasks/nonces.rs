//! The tasks that this machine has taken, so that a server cannot have one done again under another name.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_types::ids::TaskId;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::check::{CLOCKS, Refused};
use crate::disk::{on_disk, replace};

const FILE: &str = "tasks.json";
/// Only devices of the owner add any.
const MOST: usize = 10_000;
/// A clock that is set back by less does not bring an expired task back.
const KEPT_LONGER: Duration = Duration::from_secs(24 * 3_600);
/// With fewer, tasks are remembered longer.
const ROOM: usize = 2_000;
const KEPT_FOR_MESSAGES: Duration = Duration::from_secs(30 * 24 * 3_600);
/// 16 bytes in base64url.
const NONCE_LENGTH: usize = 22;

/// What is done under one task id only.
#[derive(Clone, Copy)]
pub(super) struct Once<'a> {
    pub(super) nonce: &'a str,
    pub(super) at: Timestamp,
    pub(super) expires: Timestamp,
}

pub(in crate::host) struct Nonces {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Known {
    /// Tasks from before are not done: what was taken before is not known.
    since: Timestamp,
    taken: BTreeMap<String, Taken>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Taken {
    task: TaskId,
    expires: Timestamp,
}

impl Nonces {
    /// Reads what is known in this folder. Without a file it begins now, or before all tasks where no host has worked yet.
    pub(in crate::host) fn open(folder: &Path, now: Timestamp) -> io::Result<Self> {
        let path = folder.join(FILE);
        let known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let since = if is_unused(folder)? { Timestamp::from_unix_seconds(0) } else { now };
                let known = Known { since, taken: BTreeMap::new() };
                replace(&path, &known)?;
                known
            }
            Err(error) => return Err(error),
        };
        Ok(Self { path, known: Arc::new(Mutex::new(known)) })
    }

    /// Whether this was taken, under this id.
    pub(super) async fn was_taken(&self, nonce: &str, id: TaskId) -> bool {
        self.known.lock().await.taken.get(nonce).is_some_and(|taken| taken.task == id)
    }

    /// Takes a task under this id. It is on disk when this returns.
    pub(super) async fn take(&self, task: &Once<'_>, id: TaskId, now: Timestamp) -> Result<(), Refused> {
        let is_nonce = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if task.nonce.len() != NONCE_LENGTH || !task.nonce.chars().all(is_nonce) {
            return Err(Refused::not_signed("its nonce is not 16 bytes"));
        }
        let mut known = self.known.lock().await;
        if task.at.plus(CLOCKS) < known.since {
            return Err(Refused::expired("it is from before this machine knows which tasks it has taken"));
        }
        match known.taken.get(task.nonce) {
            Some(taken) if taken.task == id => return Ok(()),
            Some(_) => return Err(Refused::not_signed("it was taken before, as another task")),
            None => {}
        }
        let mut next = known.clone();
        // What is remembered of a task lets its owner say more to it, as long as there is room.
        let kept = if next.taken.len() < ROOM { KEPT_FOR_MESSAGES } else { KEPT_LONGER };
        next.taken.retain(|_, taken| taken.expires.plus(kept) > now);
        if next.taken.len() >= MOST {
            return Err(Refused::busy(format!("{MOST} tasks are remembered, and no more can be")));
        }
        next.taken.insert(task.nonce.to_owned(), Taken { task: id, expires: task.expires });
        let (path, to_write) = (self.path.clone(), next.clone());
        let written = on_disk(move || replace(&path, &to_write)).await;
        written.map_err(|error| Refused::busy(format!("{}: {error}", self.path.display())))?;
        *known = next;
        Ok(())
    }
}

/// Whether no host has left anything in this folder: then none has taken a task.
fn is_unused(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != "lock" && name != "sessions" {
            return Ok(false);
        }
    }
    Ok(true)
}
