//! Reads the pipes of a program: its output goes to the transcript and the spool, the end of its standard error is
//! kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_process::disk::on_disk;
use ensemble_types::runs::Provider;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::{Notify, watch};

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

/// How long to wait for more when the program has ended. Only a process that escaped the guard can keep a pipe open.
const GRACE: Duration = Duration::from_secs(2);

/// Reads standard output to its end. When the spool is full, the program has to wait. Notifies `expensive` when it has cost more than
/// it may.
pub(super) async fn output(
    provider: Provider,
    mut stdout: ChildStdout,
    mut ended: watch::Receiver<bool>,
    (transcript, expensive): (Shared<Transcript>, Arc<Notify>),
    spool: Arc<OutputSpool>,
) {
    let mut lines = Lines::default();
    let mut chunk = vec![0; CHUNK];
    loop {
        spool.wait_for_room().await;
        let read = read(&mut stdout, &mut chunk, &mut ended).await;
        let text = {
            let mut transcript = transcript.lock();
            match chunk.get(..read).filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => lines.feed(bytes, |piece| add(provider, piece, &mut transcript)),
                None => lines.finish(|piece| add(provider, piece, &mut transcript)),
            }
            if transcript.is_too_expensive() {
                expensive.notify_one();
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
pub(super) async fn stderr_tail(mut stderr: ChildStderr, mut ended: watch::Receiver<bool>, kept: Shared<Vec<u8>>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = read(&mut stderr, &mut chunk, &mut ended).await;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { return };
        let mut kept = kept.lock();
        kept.extend_from_slice(bytes);
        let surplus = kept.len().saturating_sub(STDERR_TAIL);
        kept.drain(..surplus);
    }
}

/// Writes to the spool on a blocking thread, so that other tasks of this thread can continue.
pub(super) async fn append(spool: &Arc<OutputSpool>, text: String) {
    if text.is_empty() {
        return;
    }
    let spool = spool.clone();
    if let Err(error) = on_disk(move || spool.append(&text)).await {
        tracing::error!("Cannot store the output of a program: {error}");
    }
}

/// A pipe that fails is treated as a pipe that has ended, and so is one that stays silent when the program has ended.
async fn read(pipe: &mut (impl AsyncRead + Unpin), chunk: &mut [u8], ended: &mut watch::Receiver<bool>) -> usize {
    let silence = async {
        // The sender goes when the attempt is over.
        let _ = ended.wait_for(|ended| *ended).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        read = pipe.read(chunk) => read.unwrap_or(0),
        () = silence => 0,
    }
}

fn add(provider: Provider, piece: Piece, transcript: &mut Transcript) {
    match piece {
        Piece::Line(line) => read_line(provider, &line, transcript),
        Piece::Raw(piece) => transcript.raw(&piece),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_silent_pipe_is_given_up_when_the_program_has_ended() {
        let (mut program, mut pipe) = tokio::io::duplex(64);
        let (ended, mut has_ended) = watch::channel(false);
        let mut chunk = [0; 64];
        program.write_all(b"first").await.unwrap();
        assert_eq!(read(&mut pipe, &mut chunk, &mut has_ended).await, 5);
        ended.send_replace(true);
        program.write_all(b"last").await.unwrap();
        assert_eq!(read(&mut pipe, &mut chunk, &mut has_ended).await, 4, "what is there is read");
        let begun = Instant::now();
        assert_eq!(read(&mut pipe, &mut chunk, &mut has_ended).await, 0);
        assert!(begun.elapsed() >= GRACE);
    }
}
