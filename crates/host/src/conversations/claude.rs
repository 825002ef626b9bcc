//! The conversations of claude: a file of JSON lines for each, in folders that it names after directories.
//!
//! Two directories may have one folder, so the lines say which directory it is. Files may be as long as a disk, and may be anything that
//! a directory can hold.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ensemble_types::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::Found;

/// Files that are read: those that were changed last.
const MOST_FILES: usize = 200;
/// Files whose times are looked at.
const MOST_LOOKED_AT: usize = 50_000;
/// What is read of each file at its beginning, and at its end.
const PART: u64 = 64 << 10;

/// Where claude keeps its files.
pub(super) fn folder(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let given = env.get("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    given.or_else(|| Some(Path::new(env.get("HOME")?).join(".claude")))
}

/// The conversations of a directory.
///
/// # Errors
/// The folder cannot be read.
pub(super) fn list(folder: &Path, directory: &Path) -> io::Result<Vec<Found>> {
    let projects = match fs::read_dir(folder.join("projects")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        projects => projects?,
    };
    // Neither a folder nor a file that is a link is followed.
    let folders = projects.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let mut newest: Vec<(SystemTime, PathBuf, Uuid)> = files
        .take(MOST_LOOKED_AT)
        .filter_map(|entry| {
            // Files of sub-agents have other names.
            let id = entry.file_name().to_str()?.strip_suffix(".jsonl")?.parse().ok()?;
            let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((found.modified().ok()?, entry.path(), id))
        })
        .collect();
    let directory = directory.display().to_string();
    // Where claude keeps those that began there. Others of a busy computer must not hide them.
    let named = directory.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let is_elsewhere = |file: &Path| file.parent().and_then(Path::file_name).is_none_or(|name| name != named.as_str());
    newest.sort_unstable_by_key(|(changed, file, _)| (is_elsewhere(file), Reverse(*changed)));
    newest.truncate(MOST_FILES);
    let found = newest.into_iter().filter_map(|(changed, file, id)| {
        let first_prompt = open(&file)?.first_prompt_in(&directory)?;
        Some(Found { id: id.to_string(), first_prompt, changed: timestamp(changed), file: Some(file) })
    });
    Ok(found.collect())
}

/// A time before 1970 is not one of claude's.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::from_micros(0).plus(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A regular file of this user.
pub(super) struct Own {
    file: File,
    length: u64,
}

/// `None`: it is no such file. A link is not followed, and a pipe does not block.
pub(super) fn open(path: &Path) -> Option<Own> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_own = found.is_file() && found.uid() == nix::unistd::geteuid().as_raw();
    is_own.then_some(Own { file, length: found.len() })
}

impl Own {
    /// What it begins with, as far as it is read.
    pub(super) fn beginning(&self) -> io::Result<Vec<u8>> {
        self.read(0)
    }

    fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(PART).unwrap_or_default()];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            let done = u64::try_from(read).unwrap_or(u64::MAX);
            match self.file.read_at(rest, at.saturating_add(done))? {
                0 => break,
                more => read = read.saturating_add(more),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The first prompt, if a line says that the conversation was in this directory. Empty: the beginning has none.
    fn first_prompt_in(&self, directory: &str) -> Option<String> {
        let beginning = self.beginning().ok()?;
        // A line that is cut is no JSON.
        let is_here = |line: &Entry| line.cwd.as_deref() == Some(directory);
        let lines: Vec<Entry> = entries(&beginning).collect();
        let end = self.length.saturating_sub(PART).max(PART);
        let is_here = lines.iter().any(is_here) || entries(&self.read(end).ok()?).any(|line| is_here(&line));
        is_here.then(|| lines.iter().find_map(Entry::prompt).unwrap_or_default())
    }
}

/// A line, as far as it counts.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    is_meta: bool,
    #[serde(default)]
    message: Value,
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

impl Entry {
    /// What a person has typed, if it is that.
    fn prompt(&self) -> Option<String> {
        let is_typed = self.kind == "user" && !self.is_sidechain && !self.is_meta;
        let content = self.message.get("content").filter(|_| is_typed)?;
        let block = |block: &Value| block.get("text").and_then(Value::as_str).map(str::to_owned);
        let text = content.as_str().map(str::to_owned).or_else(|| content.as_array()?.iter().find_map(block))?;
        // It keeps its own commands and their output as messages of the person.
        let is_of_command = ["<command-", "<local-command-"].iter().any(|begin| text.starts_with(begin));
        (!is_of_command && !text.trim().is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests;
