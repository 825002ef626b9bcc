//! File operations: blocking ones on threads, for tasks that must not wait for a slow disk, and files that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;

/// Runs the operation on a blocking thread, so that a slow disk does not block other tasks.
pub async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Replaces a file by this value as JSON, atomically: even after a power failure it is complete or unchanged. Only this user can
/// read it.
pub fn replace(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace_text(path, &serde_json::to_string(value).map_err(io::Error::other)?)
}

/// The same with a text.
pub fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes the changes in a folder survive a power failure.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
