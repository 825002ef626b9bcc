//! Work that may have to wait for a disk, or for a network that pretends to be one.

use std::io;

/// Does it where it holds up nobody else.
pub(crate) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}
