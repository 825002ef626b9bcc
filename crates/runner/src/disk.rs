//! Runs blocking file operations.

use std::io;

/// Runs the operation on a blocking thread, so that a slow disk does not block other tasks.
pub(crate) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}
