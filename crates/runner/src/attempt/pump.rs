//! Reads the pipes of a program: its output goes to the transcript and the spool, the end of its standard error is
//! kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ensemble_types::runs::Provider;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};

use crate::disk::on_disk;
use crate::provider::{Lines, Piece, Transcript, read_line};

use crate::spool::OutputSpool;

/// The size of one read.
const CHUNK: usize = 64 * 1024;

/// How much of the end of standard error is kept.
const STDERR_TAIL: usize = 8 * 1024;

/// State that a pump writes and the supervisor reads.
pub(super) struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads standard output to its end. When the spool is full, the program has to wait.
pub(super) async fn output(
    provider: Provider,
    mut stdout: ChildStdout,
    transcript: Shared<Transcript>,
    spool: Arc<OutputSpool>,
) {
    let mut lines = Lines::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        spool.wait_for_room().await;
        let read = read(&mut stdout, &mut chunk).await;
        let text = {
            let mut transcript = transcript.lock();
            match chunk.get(..read).filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => lines.feed(bytes, |piece| add(provider, piece, &mut transcript)),
                None => lines.finish(|piece| add(provider, piece, &mut transcript)),
            }
            transcript.take_text()
        };
        append(&spool, text).await;
        if read == 0 {
            return;
        }
    }
}

/// Reads standard error to its end and keeps the last part.
pub(super) async fn stderr_tail(mut stderr: ChildStderr, kept: Shared<Vec<u8>>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = read(&mut stderr, &mut chunk).await;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return };
        let mut kept = kept.lock();
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(STDERR_TAIL);
        kept.drain(..surplus);
    }
}

/// Writes to the spool on a blocking thread, so that other tasks of this thread can go on.
pub(super) async fn append(spool: &Arc<OutputSpool>, text: String) {
    if text.is_empty() {
        return;
    }
    let spool = spool.clone();
    if let Err(error) = on_disk(move || spool.append(&text)).await {
        tracing::error!("Cannot store the output of a program: {error}");
    }
}

/// A pipe that fails is treated as a pipe that has ended.
async fn read(pipe: &mut (impl AsyncRead + Unpin), chunk: &mut [u8]) -> usize {
    pipe.read(chunk).await.unwrap_or(0)
}

fn add(provider: Provider, piece: Piece, transcript: &mut Transcript) {
    match piece {
        Piece::Line(line) => read_line(provider, &line, transcript),
        Piece::Raw(piece) => transcript.raw(&piece),
    }
}
