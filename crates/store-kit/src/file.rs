//! The file of a SQLite database: it belongs to one process, and a file that has lost its data is not taken for a new one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::connection::{Connection, SimpleConnection};
use diesel::sqlite::SqliteConnection;
use rustix::fs::statvfs;
use tokio::time::Instant;

/// SQLite writes these files next to a database (sqlite.org/tempfiles.html), and plays them back when it opens one.
const LEFTOVERS: &[&str] = &["-wal", "-shm", "-journal"];
/// The messages of SQLITE_NOTADB and SQLITE_CORRUPT.
const DAMAGE: &[&str] = &["file is not a database", "database disk image is malformed"];
/// Only the user of the service reads its database, also where the folder is open to others.
const PRIVATE: u32 = 0o600;
const LOST: &str = "the file is empty, and Ensemble never leaves one empty";

/// How long to wait for the process that had the database: one that ends gives up its lock at the very end.
const LAST_OWNER: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Locks the database's file, and creates it where there is none.
pub(crate) async fn claim(path: &Path) -> Result<File, Unusable> {
    let lock = lock(path).await?;
    match fs::metadata(path) {
        Ok(found) if found.len() == 0 => Err(Unusable::Damaged(LOST.to_owned())),
        Ok(_) => Ok(lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path).map(|()| lock),
        Err(error) => Err(error.into()),
    }
}

/// Whether the disk of a database is full: a file that cannot grow by this much takes no writes soon. A disk that does not say counts as
/// one with room.
pub(crate) fn has_no_room(path: &Path) -> bool {
    const LEAST: u64 = 1 << 20;
    statvfs(path).is_ok_and(|disk| disk.f_blocks > 0 && disk.f_frsize.saturating_mul(disk.f_bavail) < LEAST)
}

/// Why a file cannot be used.
pub(crate) enum Unusable {
    Damaged(String),
    Other(String),
}

/// Whether SQLite said that the file is no database, or not a whole one. Waiting does not help.
pub(crate) fn is_damage(reason: &str) -> bool {
    DAMAGE.iter().any(|message| reason.contains(message))
}

/// SQLite allows many processes on one file. Ours allows one, because wake-ups and the queue of writers are in its memory.
async fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::options().create(true).truncate(false).write(true).mode(PRIVATE).open(append(path, ".lock"))?;
    let deadline = Instant::now() + LAST_OWNER;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                return Err(io::Error::other("another process has this database open"));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(TRY_EVERY).await,
        }
    }
}

/// Writes a database without tables to another file and moves it into place. A crash then leaves no empty file, so that an
/// empty one is always one that has lost its data.
fn create(path: &Path) -> Result<(), Unusable> {
    let new = append(path, ".new");
    // What an older database left must not be played back into the new one. SQLite removes it too when it creates a file.
    for stale in LEFTOVERS.iter().flat_map(|end| [append(path, end), append(&new, end)]).chain([new.clone()]) {
        match fs::remove_file(stale) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    // SQLite gives the database's mode to the files that it writes next to it.
    File::options().create_new(true).write(true).mode(PRIVATE).open(&new)?;
    let written = SqliteConnection::establish(&new.to_string_lossy())
        .map_err(|error| error.to_string())
        // VACUUM writes a header also where there is nothing to write.
        .and_then(|mut conn| conn.batch_execute("VACUUM").map_err(|error| error.to_string()));
    written.map_err(Unusable::Other)?;
    fs::rename(&new, path).map_err(Unusable::from)
}

fn append(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
    }
}
