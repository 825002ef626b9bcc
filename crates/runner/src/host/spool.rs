//! The host's log of a session on disk: a snapshot, and the changes since.
//!
//! A step of the session is one line of the log, and it is on disk before anything of it is shown, sent or passed to the agent. A line
//! that was not written to its end did not happen.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ensemble_types::ids::SessionId;
use serde::{Deserialize, Serialize};

use super::kept::{Change, Kept};

const SNAPSHOT: &str = "snapshot.json";
/// The log is folded into a new snapshot when it has grown to this size.
const LONGEST_LOG: u64 = 4 << 20;

/// The folder of one session.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    /// Of the snapshot: the log that goes on from it has it in its name, so that no log is applied twice.
    generation: u64,
    log: File,
    written: u64,
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    v: u32,
    generation: u64,
    kept: Kept,
}

const VERSION: u32 = 1;

impl Spool {
    /// Begins the log of a new session.
    pub(crate) fn create(sessions: &Path, kept: &Kept) -> io::Result<Self> {
        let folder = sessions.join(kept.session.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        write_snapshot(&folder, 0, kept)?;
        let log = open_log(&folder, 0)?;
        File::open(sessions)?.sync_all()?;
        Ok(Self { folder, generation: 0, log, written: 0 })
    }

    /// Opens the log of a session of an earlier process.
    pub(crate) fn open(sessions: &Path, session: SessionId) -> io::Result<(Self, Kept)> {
        let folder = sessions.join(session.to_string());
        let snapshot: Snapshot = serde_json::from_slice(&fs::read(folder.join(SNAPSHOT))?)?;
        if snapshot.v != VERSION || snapshot.kept.session != session {
            return Err(io::Error::other("it was written by another version"));
        }
        let Snapshot { generation, mut kept, .. } = snapshot;
        let mut log = open_log(&folder, generation)?;
        let mut text = Vec::new();
        log.read_to_end(&mut text)?;
        let mut good = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some(step) = line.strip_suffix(b"\n") else { break };
            let Ok(changes) = serde_json::from_slice::<Vec<Change>>(step) else { break };
            changes.into_iter().for_each(|change| kept.apply(change));
            good += line.len();
        }
        if good < text.len() {
            tracing::warn!(session.id = %session, bytes = text.len() - good, "The end of a session's log was not written whole and is left out");
        }
        let written = u64::try_from(good).unwrap_or(u64::MAX);
        log.set_len(written)?;
        Ok((Self { folder, generation, log, written }, kept))
    }

    /// The sessions that have a log.
    pub(crate) fn all(sessions: &Path) -> io::Result<Vec<SessionId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(sessions)? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Writes a step, and waits until it is on disk.
    pub(crate) fn write(&mut self, step: &[Change]) -> io::Result<()> {
        let mut line = serde_json::to_vec(step)?;
        line.push(b'\n');
        if let Err(error) = self.log.write_all(&line).and_then(|()| self.log.sync_data()) {
            // A part of the step must not stand before the next one.
            self.log.set_len(self.written)?;
            return Err(error);
        }
        self.written = self.written.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// The log has grown so long that it is time to [`fold`](Self::fold) it.
    pub(crate) fn is_long(&self) -> bool {
        self.written > LONGEST_LOG
    }

    /// Replaces the log by a snapshot of what holds after it.
    pub(crate) fn fold(&mut self, kept: &Kept) -> io::Result<()> {
        let next = self.generation + 1;
        let log = open_log(&self.folder, next)?;
        log.set_len(0)?;
        write_snapshot(&self.folder, next, kept)?;
        let old = std::mem::replace(&mut self.generation, next);
        self.log = log;
        self.written = 0;
        fs::remove_file(self.folder.join(log_name(old)))
    }

    /// Removes all of the session.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)
    }

    /// Moves the session to a folder beside the others, where a person finds it.
    pub(crate) fn set_aside(self) -> io::Result<()> {
        let (Some(sessions), Some(name)) = (self.folder.parent(), self.folder.file_name()) else { return Ok(()) };
        let aside = sessions.with_file_name("gone");
        DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
        let aside = aside.join(name);
        match fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&self.folder, aside)
    }
}

fn log_name(generation: u64) -> String {
    format!("log-{generation}.jsonl")
}

fn open_log(folder: &Path, generation: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).open(folder.join(log_name(generation)))
}

fn write_snapshot(folder: &Path, generation: u64, kept: &Kept) -> io::Result<()> {
    let new = folder.join("snapshot.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(&Snapshot { v: VERSION, generation, kept: kept.clone() })?)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(SNAPSHOT))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ensemble_transcript::words::Mode;

    use super::super::kept::Outgoing;
    use super::*;

    pub(crate) fn kept() -> Kept {
        Kept {
            session: SessionId::generate(),
            agent: "claude".into(),
            directory: "/w".into(),
            host_key: "k".into(),
            mode: Mode::Ask,
            model: None,
            conversation: ensemble_types::ids::unique(),
            resume: None,
            cost_usd: None,
            n: 0,
            unsent: VecDeque::new(),
            seen: 0,
            taken: VecDeque::new(),
            lost: None,
            access: Vec::new(),
            queue: VecDeque::new(),
            turn: None,
            open: Default::default(),
            tools: Default::default(),
            process: None,
            ended: false,
        }
    }

    fn say(n: u64, bytes: usize) -> Change {
        Change::Say(Outgoing { n, body: "x".repeat(bytes) })
    }

    fn step(spool: &mut Spool, kept: &mut Kept, changes: Vec<Change>) {
        changes.iter().cloned().for_each(|change| kept.apply(change));
        spool.write(&changes).unwrap();
        if spool.is_long() {
            spool.fold(kept).unwrap();
        }
    }

    #[test]
    fn what_was_written_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept();
        let mut spool = Spool::create(folder.path(), &kept).unwrap();
        step(&mut spool, &mut kept, vec![say(1, 5), say(2, 5), Change::Seen(7)]);
        step(&mut spool, &mut kept, vec![Change::Sent(1)]);
        assert_eq!(Spool::all(folder.path()).unwrap(), [kept.session]);
        let (_, read) = Spool::open(folder.path(), kept.session).unwrap();
        assert_eq!((read.n, read.seen, read.unsent.len()), (2, 7, 1));
    }

    #[test]
    fn half_a_step_did_not_happen() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept();
        let mut spool = Spool::create(folder.path(), &kept).unwrap();
        step(&mut spool, &mut kept, vec![say(1, 5)]);
        step(&mut spool, &mut kept, vec![say(2, 5), Change::Seen(3)]);
        let path = folder.path().join(kept.session.to_string()).join("log-0.jsonl");
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let (mut spool, mut read) = Spool::open(folder.path(), kept.session).unwrap();
            assert_eq!((read.n, read.seen), (1, 0), "{end} bytes");
            // What comes after it is not lost with it.
            step(&mut spool, &mut read, vec![Change::Seen(9)]);
            assert_eq!(Spool::open(folder.path(), kept.session).unwrap().1.seen, 9);
        }
    }

    #[test]
    fn a_long_log_is_folded_and_nothing_is_applied_twice() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept();
        let mut spool = Spool::create(folder.path(), &kept).unwrap();
        for n in 1..=100 {
            step(&mut spool, &mut kept, vec![say(n, 100_000)]);
            step(&mut spool, &mut kept, vec![Change::Sent(n.saturating_sub(2))]);
        }
        let session = folder.path().join(kept.session.to_string());
        assert_eq!(fs::read_dir(&session).unwrap().count(), 2, "a snapshot and one log");
        let (_, read) = Spool::open(folder.path(), kept.session).unwrap();
        assert_eq!((read.n, read.unsent.len()), (100, 2));
        // A process that ended between the new snapshot and the removal of the old log.
        fs::write(session.join("log-0.jsonl"), b"[{\"seen\":99}]\n").unwrap();
        assert_eq!(Spool::open(folder.path(), kept.session).unwrap().1.seen, 0);
    }

    #[test]
    fn a_log_of_another_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kept = kept();
        drop(Spool::create(folder.path(), &kept).unwrap());
        let path = folder.path().join(kept.session.to_string()).join(SNAPSHOT);
        let text = fs::read_to_string(&path).unwrap().replace("\"v\":1", "\"v\":2");
        fs::write(&path, text).unwrap();
        assert!(Spool::open(folder.path(), kept.session).is_err());
    }
}
