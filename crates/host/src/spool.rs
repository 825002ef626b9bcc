//! The host's log of a session on disk: a snapshot, and the changes since.
//!
//! A step of the session is one line of the log, and it is on disk before anything of it is shown, sent or passed to the agent. A last
//! line that was not written to its end did not happen. A log that cannot be read otherwise is lost, and the session continues from
//! its [`Card`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ensemble_process::disk::{replace, sync_folder};
use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_types::ids::SessionId;
use serde::{Deserialize, Serialize};

use super::demo;
use super::kept::{Change, Kept};
use crate::wake::wall_clock;

mod card;
mod history;

use card::CARD;
pub(crate) use card::Card;
pub(crate) use history::{History, watch};

const SNAPSHOT: &str = "snapshot.json";
/// Next to the folder of the sessions: logs that could not be used any more, for people who want to know why.
const ASIDE: &str = "lost";
/// Of each session.
const MOST_ASIDE: usize = 3;
/// The log is folded into a new snapshot when it has grown to this size.
const LONGEST_LOG: u64 = 4 << 20;

/// The folder of one session.
#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    card: Card,
    /// Of the snapshot: the log that follows it has it in its name, so that no log is applied twice.
    generation: u64,
    log: File,
    written: u64,
    /// That something cannot be kept.
    has_said: bool,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    v: u32,
    generation: u64,
    kept: Kept,
}

const VERSION: u32 = 1;

/// The log of a session of an earlier process.
#[derive(Debug)]
pub(crate) enum Opened {
    Whole(Spool, Box<Kept>),
    /// It cannot be read, for this reason.
    Lost(Card, String),
}

impl Spool {
    /// Begins the log of a new session.
    pub(crate) fn create(sessions: &Path, kept: &Kept) -> io::Result<Self> {
        let spool = Self::begin(sessions, kept, 0, &[])?;
        sync_folder(sessions)?;
        Ok(spool)
    }

    /// The log has this step before it counts, which is when there is a snapshot.
    fn begin(sessions: &Path, kept: &Kept, generation: u64, step: &[Change]) -> io::Result<Self> {
        let folder = sessions.join(kept.session.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let card = Card::of(kept);
        replace(&folder.join(CARD), &card)?;
        let log = open_log(&folder, generation)?;
        log.set_len(0)?;
        let mut spool = Self { folder, card, generation, log, written: 0, has_said: false };
        if !step.is_empty() {
            spool.write(step)?;
        }
        write_snapshot(&spool.folder, generation, kept)?;
        Ok(spool)
    }

    /// Opens the log of a session of an earlier process.
    ///
    /// # Errors
    /// The disk cannot be read now. `InvalidData`: neither the log nor the card can be used.
    pub(crate) fn open(sessions: &Path, session: SessionId) -> io::Result<Opened> {
        let folder = sessions.join(session.to_string());
        let why = match read(&folder, session) {
            Ok((generation, kept, log, written)) => {
                let card = Card::of(&kept);
                if card::read(&folder).ok().as_ref() != Some(&card) {
                    replace(&folder.join(CARD), &card)?;
                }
                let spool = Self { folder, card, generation, log, written, has_said: false };
                return Ok(Opened::Whole(spool, Box::new(kept)));
            }
            Err(NotRead::Now(error)) => return Err(error),
            Err(NotRead::Damaged(why)) => why,
        };
        match card::read(&folder) {
            Ok(card) if card.session == session => Ok(Opened::Lost(card, why)),
            Ok(_) => Err(unusable(format!("{why}; {CARD} is of another session"))),
            Err(error) => Err(io::Error::new(error.kind(), format!("{why}; {error}"))),
        }
    }

    /// Begins a new log for this session with this step, after a copy of the old one was put aside. Returns the folder of the copy.
    ///
    /// When the process ends in the middle of it, the log is lost as before, and nothing of it is left with a new one.
    pub(crate) fn replace_lost(sessions: &Path, kept: &Kept, step: &[Change]) -> io::Result<(Self, PathBuf)> {
        let name = kept.session.to_string();
        let folder = sessions.join(&name);
        let mut generation = 0;
        let mut logs = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| log_number(name).or_else(|| history::segment_number(name)));
            if let Some(number) = number {
                generation = generation.max(number.saturating_add(1));
                logs.push(entry.path());
            }
        }
        let all = sessions.with_file_name(ASIDE);
        DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        remove_old(&all, &name)?;
        let aside = all.join(format!("{name}-{generation}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let is_segment = entry.file_name().to_str().and_then(history::segment_number).is_some();
            if entry.file_type()?.is_file() && !is_segment {
                fs::copy(entry.path(), aside.join(entry.file_name()))?;
            }
        }
        match fs::remove_file(folder.join(SNAPSHOT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for log in logs {
            fs::remove_file(log)?;
        }
        Ok((Self::begin(sessions, kept, generation, step)?, aside))
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

    /// The cards of these sessions, as far as they can be read.
    pub(crate) fn cards(sessions: &Path) -> io::Result<Vec<Card>> {
        let read = |session: SessionId| card::read(&sessions.join(session.to_string())).ok();
        Ok(Self::all(sessions)?.into_iter().filter_map(read).collect())
    }

    /// # Errors
    /// The session is not here, or its card cannot be read.
    pub(crate) fn card_of(sessions: &Path, session: SessionId) -> io::Result<Card> {
        card::read(&sessions.join(session.to_string()))
    }

    /// Whom the owner had let into a session when it came to rest.
    pub(crate) fn grants_of(sessions: &Path, session: SessionId) -> io::Result<Vec<AccessGrant>> {
        match load(&sessions.join(session.to_string()), session) {
            Ok((_, kept, ..)) => Ok(kept.access),
            Err(NotRead::Now(error)) => Err(error),
            Err(NotRead::Damaged(why)) => Err(unusable(why)),
        }
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
        self.note(step)
    }

    /// Keeps the card as the log.
    fn note(&mut self, step: &[Change]) -> io::Result<()> {
        let is_new = step.iter().filter(|change| self.card.apply(change)).count() > 0;
        if is_new { replace(&self.folder.join(CARD), &self.card) } else { Ok(()) }
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
        if self.card != Card::of(kept) {
            self.card = Card::of(kept);
            replace(&self.folder.join(CARD), &self.card)?;
        }
        (self.generation, self.log, self.written) = (next, log, 0);
        if let Err(error) = self.keep()
            && !std::mem::replace(&mut self.has_said, true)
        {
            tracing::warn!("What a session has said is not kept for a server that is restored: {error}");
        }
        Ok(())
    }

    /// Keeps the logs that were folded, and lets go of older ones, also when one of them cannot be kept.
    fn keep(&self) -> io::Result<()> {
        let kept = history::keep(&self.folder, self.generation);
        kept.and(self.folder.parent().map_or(Ok(()), |sessions| history::sweep(sessions, wall_clock())))
    }

    /// Removes all of the session.
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)
    }

    /// The messages above `after` and up to `upto`, as far as they are kept.
    pub(crate) fn history(sessions: &Path, session: SessionId, after: u64, upto: u64) -> io::Result<History> {
        History::open(&sessions.join(session.to_string()), after, upto)
    }

    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// Removes all that is here of a session that was deleted, also the logs that could not be read.
    pub(crate) fn delete(sessions: &Path, session: SessionId) -> io::Result<()> {
        let name = session.to_string();
        if let Ok(card) = card::read(&sessions.join(&name)) {
            demo::remove_of(&card.agent, &card.directory, session)?;
        }
        for (_, lost) in aside(&sessions.with_file_name(ASIDE), &name)? {
            fs::remove_dir_all(lost)?;
        }
        match fs::remove_dir_all(sessions.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Makes room for another log of the session that is put aside.
fn remove_old(all: &Path, session: &str) -> io::Result<()> {
    for (_, old) in aside(all, session)?.iter().rev().skip(MOST_ASIDE - 1) {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}

/// The logs of a session that were put aside, with their numbers: the oldest first.
fn aside(all: &Path, session: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut known = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(session)?.strip_prefix('-')?.parse::<u64>().ok());
        known.extend(number.map(|number| (number, entry.path())));
    }
    known.sort_unstable();
    Ok(known)
}

/// Why a log was not read.
enum NotRead {
    /// The disk or this process has a problem that may be over later.
    Now(io::Error),
    Damaged(String),
}

impl From<io::Error> for NotRead {
    fn from(error: io::Error) -> Self {
        Self::Now(error)
    }
}

/// The same as [`load`]. The log is written to from now on.
fn read(folder: &Path, session: SessionId) -> Result<(u64, Kept, File, u64), NotRead> {
    let (generation, kept, log, written) = load(folder, session)?;
    log.set_len(written)?;
    // A process may have ended before it had put its log away. A session continues without what is kept.
    if let Err(error) = history::keep(folder, generation) {
        tracing::warn!(session.id = %session, "What it has said is not kept for a server that is restored: {error}");
    }
    Ok((generation, kept, log, written))
}

/// The generation, what holds after the log, the log, and its length in bytes.
fn load(folder: &Path, session: SessionId) -> Result<(u64, Kept, File, u64), NotRead> {
    let snapshot = match fs::read(folder.join(SNAPSHOT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NotRead::Damaged(format!("{SNAPSHOT} is missing")));
        }
        snapshot => snapshot?,
    };
    let damaged = |error: serde_json::Error| NotRead::Damaged(format!("{SNAPSHOT} cannot be read: {error}"));
    let Version { v } = serde_json::from_slice(&snapshot).map_err(damaged)?;
    if v != VERSION {
        return Err(NotRead::Damaged(format!("it was written by another version of Ensemble (format {v})")));
    }
    let Snapshot { generation, mut kept, .. } = serde_json::from_slice(&snapshot).map_err(damaged)?;
    if kept.session != session {
        return Err(NotRead::Damaged("it is of another session".to_owned()));
    }
    let path = folder.join(log_name(generation));
    let mut log = match OpenOptions::new().read(true).append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(NotRead::Damaged(format!("{} is missing", log_name(generation))));
        }
        log => log?,
    };
    let mut text = Vec::new();
    log.read_to_end(&mut text)?;
    let mut good = 0;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    for line in lines.by_ref() {
        let step = line.strip_suffix(b"\n").and_then(|step| serde_json::from_slice::<Vec<Change>>(step).ok());
        let Some(changes) = step else { break };
        changes.into_iter().for_each(|change| kept.apply(change));
        good += line.len();
    }
    // Each step was on disk before the next one was begun.
    if lines.next().is_some() {
        return Err(NotRead::Damaged(format!("{} is damaged after {good} bytes", log_name(generation))));
    }
    if good < text.len() {
        tracing::warn!(session.id = %session, bytes = text.len() - good, "The end of a session's log was not written whole and is left out");
    }
    Ok((generation, kept, log, u64::try_from(good).unwrap_or(u64::MAX)))
}

fn unusable(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn log_number(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.strip_suffix(".jsonl")?.parse().ok()
}

fn log_name(generation: u64) -> String {
    format!("log-{generation}.jsonl")
}

fn open_log(folder: &Path, generation: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).open(folder.join(log_name(generation)))
}

fn write_snapshot(folder: &Path, generation: u64, kept: &Kept) -> io::Result<()> {
    replace(&folder.join(SNAPSHOT), &Snapshot { v: VERSION, generation, kept: kept.clone() })
}

#[cfg(test)]
mod tests;
