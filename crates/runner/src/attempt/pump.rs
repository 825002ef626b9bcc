//! What a program prints, on its way to the transcript and to the spool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};

use crate::disk::on_disk;
use crate::provider::{Lines, Piece, Transcript};
use crate::spool::OutputSpool;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// How much of standard error is kept: its end.
const LAST_WORDS: usize = 8 * 1024;

/// What a pump writes and the supervisor reads.
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

/// Reads standard output to its end. When the spool is full the program has to wait.
pub(super) async fn output(mut stdout: ChildStdout, transcript: Shared<Transcript>, spool: Arc<OutputSpool>) {
    let mut lines = Lines::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        spool.room().await;
        let read = read(&mut stdout, &mut chunk).await;
        let text = {
            let mut transcript = transcript.lock();
            match chunk.get(..read).filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => lines.feed(bytes, |piece| tell(&mut transcript, piece)),
                None => lines.finish(|piece| tell(&mut transcript, piece)),
            }
            transcript.take_text()
        };
        append(&spool, text).await;
        if read == 0 {
            return;
        }
    }
}

/// Reads standard error to its end and keeps its last words.
pub(super) async fn last_words(mut stderr: ChildStderr, kept: Shared<Vec<u8>>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = read(&mut stderr, &mut chunk).await;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return };
        let mut kept = kept.lock();
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..surplus);
    }
}

/// Writes to the spool without holding up the others that share this thread.
pub(super) async fn append(spool: &Arc<OutputSpool>, text: String) {
    if text.is_empty() {
        return;
    }
    let spool = spool.clone();
    if let Err(error) = on_disk(move || spool.append(&text)).await {
        tracing::error!("Cannot keep what a program said: {error}");
    }
}

/// A pipe that fails is a pipe that has ended.
async fn read(pipe: &mut (impl AsyncRead + Unpin), chunk: &mut [u8]) -> usize {
    pipe.read(chunk).await.unwrap_or(0)
}

fn tell(transcript: &mut Transcript, piece: Piece) {
    match piece {
        Piece::Line(line) => transcript.line(&line),
        Piece::Raw(piece) => transcript.raw(&piece),
    }
}
