//! The folder of the sessions, which one program has at a time; and what is seen of an agent's directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use ensemble_types::ids::unique;
use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

use super::socket;
use crate::disk::on_disk;

/// Only one program hosts the sessions of a machine. `None`: another one does.
pub(super) fn lock(folder: &Path) -> io::Result<Option<Flock<File>>> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
}

/// Asks the program that hosts the sessions to leave, and waits until it has.
pub(super) async fn take_over(folder: &Path) -> Result<Flock<File>, String> {
    tracing::info!("Another program hosts this machine's sessions; it is asked to leave");
    if let Err(error) = socket::leave(folder).await {
        tracing::warn!("It was not asked, so this one waits until it has ended: {error}");
    }
    let path = folder.join("lock");
    let waited = on_disk(move || {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))
    });
    waited.await.map_err(|error| error.to_string())
}

/// The id of this host, made when it starts for the first time.
pub(super) fn host_id(folder: &Path) -> io::Result<Uuid> {
    let path = folder.join("id");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().parse::<Uuid>().is_ok() => text.trim().parse().map_err(io::Error::other),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // There is none yet, or it was not written to its end.
        _ => {
            let (id, new) = (unique(), path.with_extension("new"));
            fs::write(&new, id.to_string())?;
            File::open(&new)?.sync_all()?;
            fs::rename(new, path)?;
            Ok(id)
        }
    }
}

/// The branch of the directory, for people.
pub(super) async fn branch(directory: &Path) -> Option<String> {
    let head = directory.join(".git/HEAD");
    let text = on_disk(move || fs::read_to_string(head)).await.ok()?;
    text.trim().strip_prefix("ref: refs/heads/").map(str::to_owned)
}
