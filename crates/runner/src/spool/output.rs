//! The output of an attempt on disk, between the program that writes it and the server that stores it.
//!
//! The output is a sequence of files, each named by the offset of its first byte. Files that the server has stored are
//! removed, so memory use is constant and disk use is bounded: when too much output is unsent, the program has to wait.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ensemble_agent::whole_characters;
use tokio::sync::Notify;

/// The size at which a new file begins.
const FILE_BYTES: u64 = 4 << 20;

/// The limits of an attempt's output, in all and unsent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputBounds {
    pub(crate) total: u64,
    pub(crate) unsent: u64,
}

/// The output of one attempt. Offsets count bytes of UTF-8 from its start.
#[derive(Debug)]
pub(crate) struct OutputSpool {
    folder: PathBuf,
    bounds: OutputBounds,
    state: Mutex<State>,
    /// Notified when output was added or the output was closed.
    added: Notify,
    /// Notified when the server stored output.
    acknowledged: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The start offset of each file, oldest first.
    starts: VecDeque<u64>,
    newest: Option<File>,
    end: u64,
    /// The server has stored everything before this offset.
    acknowledged: u64,
    closed: bool,
    is_truncated: bool,
    /// The output is no longer needed.
    abandoned: bool,
}

impl OutputSpool {
    /// Opens the output in an attempt's folder, including the existing files.
    pub(crate) fn open(folder: &Path, bounds: OutputBounds) -> io::Result<Arc<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let start = entry.file_name().to_str().and_then(|name| name.strip_prefix("output.")?.parse::<u64>().ok());
            if let Some(start) = start {
                found.push((start, entry.metadata()?.len()));
            }
        }
        found.sort_unstable();
        let mut state = State {
            acknowledged: found.first().map_or(0, |(start, _)| *start),
            end: found.last().map_or(0, |(start, length)| start + length),
            starts: found.into_iter().map(|(start, _)| start).collect(),
            ..State::default()
        };
        trim_torn_character(folder, &mut state)?;
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            bounds,
            state: Mutex::new(state),
            added: Notify::new(),
            acknowledged: Notify::new(),
        }))
    }

    /// Waits until there is room for more output.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let acknowledged = self.acknowledged.notified();
            {
                let state = self.lock();
                if state.abandoned || state.end - state.acknowledged < self.bounds.unsent {
                    return;
                }
            }
            acknowledged.await;
        }
    }

    /// Adds output. Blocks for as long as the disk does.
    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        let mut state = self.lock();
        if text.is_empty() || state.abandoned || state.is_truncated {
            return Ok(());
        }
        let fits = state.end + u64::try_from(text.len()).unwrap_or(u64::MAX) <= self.bounds.total;
        let result = if fits {
            self.write(&mut state, text)
        } else {
            state.is_truncated = true;
            self.write(&mut state, &format!("\n[The runner cut the output here, after {} bytes.]\n", self.bounds.total))
        };
        drop(state);
        self.added.notify_waiters();
        result
    }

    /// Closes the output: nothing more will be added.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.added.notify_waiters();
    }

    /// Drops the output, also output that is added later.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.acknowledged.notify_waiters();
        self.added.notify_waiters();
    }

    /// Waits for output to send and returns its offset. `None` when all output is sent and closed, or abandoned.
    pub(crate) async fn next_unsent(&self) -> Option<u64> {
        loop {
            let added = self.added.notified();
            {
                let state = self.lock();
                if state.abandoned {
                    return None;
                }
                if state.acknowledged < state.end {
                    return Some(state.acknowledged);
                }
                if state.closed {
                    return None;
                }
            }
            added.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// At most `most` bytes from this offset, without splitting a character. Blocks for as long as the disk does.
    pub(crate) fn read(&self, from: u64, most: u64) -> io::Result<String> {
        let start = {
            let state = self.lock();
            state.starts.iter().rev().copied().find(|start| *start <= from)
        };
        let Some(start) = start else { return Ok(String::new()) };
        let mut file = File::open(self.file(start))?;
        file.seek(SeekFrom::Start(from - start))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        bytes.truncate(whole_characters(&bytes));
        String::from_utf8(bytes).map_err(io::Error::other)
    }

    /// Records that the server has stored everything before this offset.
    pub(crate) fn acknowledge(&self, until: u64) {
        let mut state = self.lock();
        // The server may report more than was written. Nothing is sent twice for that.
        state.acknowledged = until.min(state.end);
        while let Some(next) = state.starts.get(1).copied().filter(|next| *next <= state.acknowledged) {
            let oldest = state.starts.pop_front().unwrap_or(next);
            // A file that cannot be removed only uses disk space until the attempt's folder is removed.
            let _ = fs::remove_file(self.file(oldest));
        }
        drop(state);
        self.acknowledged.notify_waiters();
    }

    /// The offset of the oldest output on disk.
    pub(crate) fn oldest(&self) -> u64 {
        self.lock().starts.front().copied().unwrap_or(0)
    }

    fn write(&self, state: &mut State, text: &str) -> io::Result<()> {
        let begins_file = state.starts.back().is_none_or(|start| state.end - start >= FILE_BYTES);
        if begins_file || state.newest.is_none() {
            let start = if begins_file { state.end } else { state.starts.back().copied().unwrap_or(state.end) };
            state.newest = Some(File::options().append(true).create(true).open(self.file(start))?);
            if begins_file {
                state.starts.push_back(start);
            }
        }
        if let Some(file) = &mut state.newest {
            file.write_all(text.as_bytes())?;
            state.end += u64::try_from(text.len()).unwrap_or(0);
        }
        Ok(())
    }

    fn file(&self, start: u64) -> PathBuf {
        self.folder.join(format!("output.{start:020}"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes half a character from the end, which a runner that was killed while writing may have left.
fn trim_torn_character(folder: &Path, state: &mut State) -> io::Result<()> {
    let Some(start) = state.starts.back().copied() else { return Ok(()) };
    let mut file = File::options().read(true).write(true).open(folder.join(format!("output.{start:020}")))?;
    let length = state.end - start;
    let tail_from = length.saturating_sub(4);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(tail_from))?;
    file.read_to_end(&mut tail)?;
    let torn = u64::try_from(tail.len() - whole_characters(&tail)).unwrap_or(0);
    if torn > 0 {
        file.set_len(length - torn)?;
        state.end -= torn;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: OutputBounds = OutputBounds { total: 100 << 20, unsent: 1 << 20 };

    #[tokio::test]
    async fn what_was_taken_leaves_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        let piece = "0123456789abcdé\n".repeat(1 << 12);
        let mut read = String::new();
        for _ in 0..200 {
            spool.append(&piece).unwrap();
            let from = spool.next_unsent().await.unwrap();
            let got = spool.read(from, 100_000).unwrap();
            spool.acknowledge(from + u64::try_from(got.len()).unwrap());
            read.push_str(&got);
        }
        spool.close();
        while let Some(from) = spool.next_unsent().await {
            let got = spool.read(from, 99_999).unwrap();
            spool.acknowledge(from + u64::try_from(got.len()).unwrap());
            read.push_str(&got);
        }
        assert!(read == piece.repeat(200));
        assert!(fs::read_dir(folder.path()).unwrap().count() <= 2);
    }

    #[tokio::test]
    async fn a_successor_continues_where_the_files_end() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        spool.append("one ").unwrap();
        drop(spool);
        // The runner was killed in the middle of a character.
        let path = folder.path().join(format!("output.{:020}", 0));
        File::options().append(true).open(&path).unwrap().write_all(&"😀".as_bytes()[..2]).unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        spool.append("two").unwrap();
        spool.close();
        assert_eq!(spool.next_unsent().await, Some(0));
        assert_eq!(spool.read(0, 100).unwrap(), "one two");
        assert_eq!(spool.read(4, 100).unwrap(), "two");
    }

    #[tokio::test]
    async fn the_end_is_marked_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), OutputBounds { total: 10, unsent: 4 }).unwrap();
        spool.append("12345678").unwrap();
        spool.append("9012").unwrap();
        spool.append("never").unwrap();
        assert_eq!(spool.read(0, 100).unwrap(), "12345678\n[The runner cut the output here, after 10 bytes.]\n");
    }
}
