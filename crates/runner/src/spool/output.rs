//! What an attempt said, on disk between the program that says it and the server that takes it.
//!
//! It is a row of files, each named by the offset of its first byte. What the server has taken is removed, so memory
//! stays flat whatever the size of the output, and disk is bounded: when too much waits, the program has to wait.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::provider::whole_characters;

/// A file is followed by the next when it has this size.
const FILE_BYTES: u64 = 4 << 20;

/// How much may be said, and how much of it may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputBounds {
    pub(crate) in_all: u64,
    pub(crate) waiting: u64,
}

/// The output of one attempt. Offsets count bytes of UTF-8 since its start.
#[derive(Debug)]
pub(crate) struct OutputSpool {
    folder: PathBuf,
    bounds: OutputBounds,
    state: Mutex<State>,
    /// Something was added, or nothing more will be.
    grown: Notify,
    /// Something was taken.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Where each file starts, oldest first.
    starts: VecDeque<u64>,
    newest: Option<File>,
    end: u64,
    /// Everything before this has been taken.
    taken: u64,
    closed: bool,
    is_cut: bool,
    /// Nobody wants it any more.
    abandoned: bool,
    /// The program has ended, so there is nobody left to be made to wait.
    unbounded: bool,
}

impl OutputSpool {
    /// Opens the output in an attempt's folder, with whatever is there already.
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
            taken: found.first().map_or(0, |(start, _)| *start),
            end: found.last().map_or(0, |(start, length)| start + length),
            starts: found.into_iter().map(|(start, _)| start).collect(),
            ..State::default()
        };
        trim_torn_character(folder, &mut state)?;
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            bounds,
            state: Mutex::new(state),
            grown: Notify::new(),
            taken: Notify::new(),
        }))
    }

    /// Waits until there is room for more.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            {
                let state = self.lock();
                if state.abandoned || state.unbounded || state.end - state.taken < self.bounds.waiting {
                    return;
                }
            }
            taken.await;
        }
    }

    /// Adds what was said. Blocks for as long as the disk does.
    pub(crate) fn append(&self, text: &str) -> io::Result<()> {
        let mut state = self.lock();
        if text.is_empty() || state.abandoned || state.is_cut {
            return Ok(());
        }
        let fits = state.end + u64::try_from(text.len()).unwrap_or(u64::MAX) <= self.bounds.in_all;
        let result = if fits {
            self.write(&mut state, text)
        } else {
            state.is_cut = true;
            self.write(
                &mut state,
                &format!("\n[The runner cut the output here, after {} bytes.]\n", self.bounds.in_all),
            )
        };
        drop(state);
        self.grown.notify_waiters();
        result
    }

    /// Nothing more will be added.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.grown.notify_waiters();
    }

    /// Nobody is made to wait any more; what still comes is what was in the pipes.
    pub(crate) fn lift_bound(&self) {
        self.lock().unbounded = true;
        self.taken.notify_waiters();
    }

    /// Nobody wants it any more: what waits is dropped, and so is what comes.
    pub(crate) fn abandon(&self) {
        self.lock().abandoned = true;
        self.taken.notify_waiters();
        self.grown.notify_waiters();
    }

    /// Waits for something to send. `None` when it is closed and everything was taken, or when nobody wants it.
    pub(crate) async fn waiting(&self) -> Option<u64> {
        loop {
            let grown = self.grown.notified();
            {
                let state = self.lock();
                if state.abandoned {
                    return None;
                }
                if state.taken < state.end {
                    return Some(state.taken);
                }
                if state.closed {
                    return None;
                }
            }
            grown.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// At most `most` bytes from this offset on, without splitting a character. Blocks for as long as the disk does.
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

    /// The server has everything before this offset, whatever it was given.
    pub(crate) fn took(&self, until: u64) {
        let mut state = self.lock();
        // A server that has more than was said cannot be helped; it is not given anything twice.
        state.taken = until.min(state.end);
        while let Some(next) = state.starts.get(1).copied().filter(|next| *next <= state.taken) {
            let oldest = state.starts.pop_front().unwrap_or(next);
            // A file that stays behind costs only disk, until the attempt's folder goes.
            let _ = fs::remove_file(self.file(oldest));
        }
        drop(state);
        self.taken.notify_waiters();
    }

    /// Where what is still here begins.
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

/// A predecessor that was killed while writing may have left half a character at the end.
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

    const BOUNDS: OutputBounds = OutputBounds { in_all: 100 << 20, waiting: 1 << 20 };

    #[tokio::test]
    async fn what_was_taken_leaves_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        let piece = "0123456789abcdé\n".repeat(1 << 12);
        let mut read = String::new();
        for _ in 0..200 {
            spool.append(&piece).unwrap();
            let from = spool.waiting().await.unwrap();
            let got = spool.read(from, 100_000).unwrap();
            spool.took(from + u64::try_from(got.len()).unwrap());
            read.push_str(&got);
        }
        spool.close();
        while let Some(from) = spool.waiting().await {
            let got = spool.read(from, 99_999).unwrap();
            spool.took(from + u64::try_from(got.len()).unwrap());
            read.push_str(&got);
        }
        assert!(read == piece.repeat(200));
        assert!(fs::read_dir(folder.path()).unwrap().count() <= 2);
    }

    #[tokio::test]
    async fn a_successor_goes_on_where_the_files_end() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        spool.append("one ").unwrap();
        drop(spool);
        // Killed in the middle of a character.
        let path = folder.path().join(format!("output.{:020}", 0));
        File::options().append(true).open(&path).unwrap().write_all(&"😀".as_bytes()[..2]).unwrap();
        let spool = OutputSpool::open(folder.path(), BOUNDS).unwrap();
        spool.append("two").unwrap();
        spool.close();
        assert_eq!(spool.waiting().await, Some(0));
        assert_eq!(spool.read(0, 100).unwrap(), "one two");
        assert_eq!(spool.read(4, 100).unwrap(), "two");
    }

    #[tokio::test]
    async fn the_end_is_marked_where_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let spool = OutputSpool::open(folder.path(), OutputBounds { in_all: 10, waiting: 4 }).unwrap();
        spool.append("12345678").unwrap();
        spool.append("9012").unwrap();
        spool.append("never").unwrap();
        assert_eq!(spool.read(0, 100).unwrap(), "12345678\n[The runner cut the output here, after 10 bytes.]\n");
    }
}
