//! The tasks that this machine has taken, so that a server cannot have one done again under another name.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_client::seal::SessionTask;
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
/// 16 bytes in base64url.
const NONCE_LENGTH: usize = 22;

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
    /// Reads what is known in this folder. Without a file it begins now.
    pub(in crate::host) fn open(folder: &Path, now: Timestamp) -> io::Result<Self> {
        let path = folder.join(FILE);
        let known = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let known = Known { since: now, taken: BTreeMap::new() };
                replace(&path, &known)?;
                known
            }
            Err(error) => return Err(error),
        };
        Ok(Self { path, known: Arc::new(Mutex::new(known)) })
    }

    /// Takes a task under this id. It is on disk when this returns.
    pub(super) async fn take(&self, task: &SessionTask, id: TaskId, now: Timestamp) -> Result<(), Refused> {
        let is_nonce = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if task.nonce.len() != NONCE_LENGTH || !task.nonce.chars().all(is_nonce) {
            return Err(Refused::not_signed("its nonce is not 16 bytes"));
        }
        let mut known = self.known.lock().await;
        if task.at.plus(CLOCKS) < known.since {
            return Err(Refused::expired("it is from before this machine knows which tasks it has taken"));
        }
        match known.taken.get(&task.nonce) {
            Some(taken) if taken.task == id => return Ok(()),
            Some(_) => return Err(Refused::not_signed("it was taken before, as another task")),
            None => {}
        }
        let mut next = known.clone();
        next.taken.retain(|_, taken| taken.expires.plus(KEPT_LONGER) > now);
        if next.taken.len() >= MOST {
            return Err(Refused::busy(format!("{MOST} tasks are remembered, and no more can be")));
        }
        next.taken.insert(task.nonce.clone(), Taken { task: id, expires: task.expires });
        let (path, to_write) = (self.path.clone(), next.clone());
        let written = on_disk(move || replace(&path, &to_write)).await;
        written.map_err(|error| Refused::busy(format!("{}: {error}", self.path.display())))?;
        *known = next;
        Ok(())
    }
}
