//! The folder of the sessions, which one program has at a time; and what is seen of an agent's directory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ensemble_process::disk::{on_disk, replace};
use ensemble_types::ids::unique;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::socket;
use crate::drain::{Drain, Phase};
use crate::settings::Hosting;

/// No other user can lock it, whatever the umask is.
fn open_lock(folder: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(folder.join("lock"))
}

/// Only one program hosts the sessions of a machine. `None`: another one does.
pub(super) fn lock(folder: &Path) -> io::Result<Option<Flock<File>>> {
    let file = open_lock(folder)?;
    Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
}

/// The folder of a host, which this program alone has.
pub struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Folder {
    /// Takes the folder, also from another program that hosts sessions there. `None`: that program keeps it and hosts sessions for everyone,
    /// or this program is to end.
    ///
    /// # Errors
    /// It cannot be used. The text is for people.
    pub async fn take(hosting: &Hosting, drain: &Drain) -> Result<Option<Self>, String> {
        let folder = hosting.folder.clone();
        let prepared = on_disk(move || {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.join("sessions"))?;
            Ok((folder.canonicalize()?, lock(&folder)?))
        });
        let (path, lock) = prepared.await.map_err(|error| format!("{}: {error}", hosting.folder.display()))?;
        let lock = match lock {
            Some(lock) => lock,
            None if hosting.sessions_only => {
                socket::is_open(&path).await?;
                hosting.ready.notify_one();
                return Ok(None);
            }
            None => tokio::select! {
                lock = take_over(&path) => lock?,
                () = drain.reached(Phase::Draining) => return Ok(None),
            },
        };
        Ok(Some(Self { path, _lock: lock }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Says which process hosts the sessions.
pub(super) fn write_pid(folder: &Path) -> io::Result<()> {
    let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(folder.join("pid"))?;
    file.write_all(std::process::id().to_string().as_bytes())
}

/// A program that has just started does not listen yet.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Asks the program that hosts the sessions to leave, and waits until it has.
pub(super) async fn take_over(folder: &Path) -> Result<Flock<File>, String> {
    tracing::info!("Another program hosts this machine's sessions; it is asked to leave");
    while let Err(error) = socket::leave(folder).await {
        tracing::debug!("It was not asked yet: {error}");
        tokio::time::sleep(ASKED_AGAIN_AFTER).await;
        // It may have ended without being asked.
        let path = folder.to_owned();
        if let Some(lock) = on_disk(move || lock(&path)).await.map_err(|error| error.to_string())? {
            return Ok(lock);
        }
    }
    let folder = folder.to_owned();
    let waited = on_disk(move || {
        let file = open_lock(&folder)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))
    });
    waited.await.map_err(|error| error.to_string())
}

/// Names this process, another one at each start: a copy of the machine has the same files and is another process.
pub(super) struct Name {
    path: PathBuf,
    place: String,
    pub(super) id: Uuid,
    /// The process before it that the server has taken a beat of.
    pub(super) previous: Option<Uuid>,
    /// Those before that one, the newest first: a server that was restored knows one of them.
    pub(super) earlier: Vec<Uuid>,
    /// That process had this very folder since the machine was started, so it has ended: this one has its lock. Otherwise it may run
    /// on another copy.
    pub(super) has_ended: bool,
    is_kept: AtomicBool,
}

/// The process that hosted last.
#[derive(Serialize, Deserialize)]
struct Last {
    id: Uuid,
    place: String,
    #[serde(default)]
    earlier: Vec<Uuid>,
}

/// Processes that are remembered.
const MOST_EARLIER: usize = 16;

impl Name {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let (path, place) = (folder.join("id.json"), place(folder)?);
        let last: Option<Last> = match fs::read(&path) {
            // Without it the server waits until the beats of the process before are old.
            Ok(text) => serde_json::from_slice(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let has_ended = last.as_ref().is_none_or(|last| last.place == place);
        let previous = last.as_ref().map(|last| last.id);
        let earlier = last.map(|last| last.earlier).unwrap_or_default();
        Ok(Self { path, place, id: unique(), previous, earlier, has_ended, is_kept: AtomicBool::new(false) })
    }

    /// The server has taken a beat with this id, so the next process follows it.
    pub(super) async fn keep(&self) {
        if self.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let earlier = self.previous.into_iter().chain(self.earlier.iter().copied()).take(MOST_EARLIER).collect();
        let (path, last) = (self.path.clone(), Last { id: self.id, place: self.place.clone(), earlier });
        if let Err(error) = on_disk(move || replace(&path, &last)).await {
            self.is_kept.store(false, Ordering::Relaxed);
            tracing::error!(
                "The next start of this program has to wait for its sessions: {}: {error}",
                self.path.display()
            );
        }
    }
}

/// Differs between copies of the folder, and after a new start of the machine (Linux: proc_sys_kernel(5), `boot_id`).
fn place(folder: &Path) -> io::Result<String> {
    let boot = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => boot.trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let found = fs::metadata(folder)?;
    Ok(format!("{boot} {} {}", found.dev(), found.ino()))
}

/// The branch of the directory, for people.
pub(super) async fn branch(directory: &Path) -> Option<String> {
    let head = directory.join(".git/HEAD");
    let text = on_disk(move || fs::read_to_string(head)).await.ok()?;
    text.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_knows_the_one_before_it_and_a_copy_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Name::new(folder.path()).unwrap();
        assert_eq!((first.previous, first.has_ended), (None, true));
        first.keep().await;
        let next = Name::new(folder.path()).unwrap();
        assert_eq!((next.previous, next.has_ended), (Some(first.id), true));
        assert_ne!(next.id, first.id);
        next.keep().await;
        let third = Name::new(folder.path()).unwrap();
        assert_eq!(
            (third.previous, &*third.earlier),
            (Some(next.id), &[first.id][..]),
            "for a server that was restored"
        );
        // The server has no beat of it, so the process after it follows the same one.
        assert_eq!(Name::new(folder.path()).unwrap().previous, Some(next.id));
        let copy = tempfile::tempdir().unwrap();
        fs::copy(folder.path().join("id.json"), copy.path().join("id.json")).unwrap();
        let copied = Name::new(copy.path()).unwrap();
        assert_eq!((copied.previous, copied.has_ended), (Some(next.id), false));
    }

    #[tokio::test]
    async fn a_host_that_is_not_ready_to_leave_is_asked_again() {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap().unwrap();
        let listener = socket::listen(folder.path()).unwrap();
        let host = async {
            drop(listener.accept().await.unwrap());
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream.read_line(&mut String::new()).await.unwrap();
            let answer = serde_json::to_string(&crate::local::Answer::Leaving).unwrap();
            stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            drop(held);
        };
        let both = async { tokio::join!(take_over(folder.path()), host).0.map(drop) };
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), both).await, Ok(Ok(())));
    }
}
