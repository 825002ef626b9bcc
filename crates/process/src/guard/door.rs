//! The guard without a runner: for a while it waits for another one.

use std::cell::RefCell;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, timeout_at};

/// What is kept of standard error.
const SAID: usize = 4 << 10;

/// Where another runner connects.
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
    until: Instant,
}

impl Door {
    /// Listens in a folder that only this user can enter.
    pub(super) fn open(path: &Path, time: Duration) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned(), until: Instant::now() + time })
    }

    /// The next runner. `None`: none has come in time. Cancel safe.
    pub(super) async fn next(&self) -> Option<UnixStream> {
        timeout_at(self.until, self.listener.accept()).await.ok()?.ok().map(|(stream, _)| stream)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The end of what a program has written to standard error.
#[derive(Clone, Default)]
pub(super) struct Said(Rc<RefCell<Vec<u8>>>);

impl Said {
    /// Reads to the end.
    pub(super) async fn keep(self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = [0; 1 << 10];
        while let Ok(read) = stderr.read(&mut chunk).await {
            let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return };
            let mut kept = self.0.borrow_mut();
            kept.extend_from_slice(bytes);
            let surplus = kept.len().saturating_sub(SAID);
            kept.drain(..surplus);
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }
}
