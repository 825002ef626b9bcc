//! Who has looked at what on this machine: one file a day, for 30 days. Only this user can read it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use ensemble_protocol::seal::look::{Look, Question, SignedQuestion};
use ensemble_protocol::transcript::bounds::beginning;
use ensemble_types::time::Timestamp;
use serde_json::json;

const DAYS: i64 = 30;
const DAY: i64 = 24 * 3_600;
/// Of the file of a day. Nothing is shown after that.
const MOST_BYTES: u64 = 16 << 20;
const MOST_PATH: usize = 512;

pub(super) struct Log {
    folder: PathBuf,
    /// One line at a time, and the day of the last one.
    day: Mutex<Option<i64>>,
}

impl Log {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, day: Mutex::default() }
    }

    /// # Errors
    /// It cannot be written. The look is not shown then.
    pub(super) fn write(&self, at: Timestamp, asked: &SignedQuestion, question: &Question) -> io::Result<()> {
        let day = at.unix_seconds().div_euclid(DAY);
        let mut last = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if last.replace(day) != Some(day) {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            self.sweep(day)?;
        }
        let path = match &question.look {
            Look::Names { below, .. } => below.as_deref(),
            Look::File { path, .. } => Some(path.as_str()),
            Look::Git { path, .. } => path.as_deref(),
            _ => None,
        };
        let path = path.map(|path| beginning(path, MOST_PATH).0);
        let line = json!({
            "at": at, "user": asked.user, "key": asked.key, "session": question.session, "look": question.look.does(), "path": path,
        });
        let name = self.folder.join(format!("{day}.jsonl"));
        let mut file = File::options().append(true).create(true).mode(0o600).open(name)?;
        if file.metadata()?.len() >= MOST_BYTES {
            return Err(io::Error::other("the file of this day is full"));
        }
        file.write_all(format!("{line}\n").as_bytes())
    }

    fn sweep(&self, today: i64) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let day = path.file_stem().and_then(|name| name.to_str()?.parse::<i64>().ok());
            if day.is_some_and(|day| day <= today - DAYS) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}
