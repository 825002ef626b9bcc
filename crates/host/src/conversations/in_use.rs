//! Whether a program works with a conversation now.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::claude;

/// Why a program may work with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum InUse {
    /// It was changed within the last minute.
    JustChanged,
    /// The process with this number has it open.
    Open(u32),
}

/// Records of running programs that are read.
const MOST_RECORDS: usize = 1_000;
/// Files that are open in all processes of this user.
const MOST_FILES: usize = 200_000;

/// What the programs of this user have open.
#[derive(Default)]
pub(super) struct Opened {
    /// The names of files, with a process that has one open. A name has the id of its conversation in it.
    files: HashMap<OsString, u32>,
    /// Conversations that claude says to have open: it opens the file only to write a line.
    claude: HashMap<String, u32>,
}

/// What a running claude writes about itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    pid: u32,
    session_id: String,
    /// As in /proc/PID/stat. Another process may have the number by now.
    #[serde(default)]
    proc_start: Option<String>,
}

impl Opened {
    /// Looks at the processes. `claude` is claude's own folder.
    pub(super) fn now(claude: Option<&Path>) -> Self {
        let records = claude.map(|folder| records(&folder.join("sessions"))).unwrap_or_default();
        let running = records.into_iter().filter(is_running);
        Self { files: open_files(Path::new("/proc")), claude: running.map(|one| (one.session_id, one.pid)).collect() }
    }

    pub(super) fn process_of(&self, id: &str, file: Option<&Path>) -> Option<u32> {
        let of_file = || self.files.get(file?.file_name()?);
        self.claude.get(id).or_else(of_file).copied()
    }
}

/// The files that hold conversations and are open. Systems without /proc have none here.
fn open_files(proc: &Path) -> HashMap<OsString, u32> {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let processes =
        processes.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())));
    // The descriptors of other users cannot be read.
    let open = processes.flat_map(|(pid, path)| {
        let files = fs::read_dir(path.join("fd")).into_iter().flatten().flatten();
        files.filter_map(move |file| Some((fs::read_link(file.path()).ok()?, pid)))
    });
    let of_conversations = open.take(MOST_FILES).filter(|(path, _)| path.extension() == Some(OsStr::new("jsonl")));
    of_conversations.filter_map(|(path, pid)| Some((path.file_name()?.to_owned(), pid))).collect()
}

fn records(folder: &Path) -> Vec<Record> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_RECORDS);
    let read = |path: &Path| serde_json::from_slice(&claude::open(path)?.beginning().ok()?).ok();
    let is_json = |path: &std::path::PathBuf| path.extension() == Some(OsStr::new("json"));
    entries.map(|entry| entry.path()).filter(is_json).filter_map(|path| read(&path)).collect()
}

fn is_running(record: &Record) -> bool {
    let Some(pid) = i32::try_from(record.pid).ok().filter(|pid| *pid > 0) else { return false };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    match (stat.as_deref().and_then(started), &record.proc_start) {
        (Some(started), Some(start)) => started == start,
        _ => kill(Pid::from_raw(pid), None).is_ok(),
    }
}

/// When a process has started: the 22nd field of proc_pid_stat(5). The second one is a name in parentheses.
fn started(stat: &str) -> Option<&str> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_a_process_has_open_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout-7d9f.jsonl");
        let file = fs::File::create(&path).unwrap();
        assert_eq!(Opened::now(None).process_of("7d9f", Some(&*path)), Some(std::process::id()));
        assert_eq!(Opened::now(None).process_of("7d9f", None), None);
        drop(file);
        // A program that another test starts has it as well, between fork and exec.
        let begun = std::time::Instant::now();
        while Opened::now(None).process_of("7d9f", Some(&*path)).is_some() {
            assert!(begun.elapsed().as_secs() < 60, "it is not open");
            std::thread::yield_now();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_record_of_a_process_that_has_ended_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions");
        fs::create_dir(&sessions).unwrap();
        let own = std::process::id();
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let records = [
            ("1.json", json!({"pid": own, "sessionId": "runs", "procStart": started(&stat).unwrap()})),
            ("2.json", json!({"pid": own, "sessionId": "had this number", "procStart": "7"})),
            ("3.json", json!({"pid": u32::MAX, "sessionId": "none"})),
            ("4.json", json!({"pid": own, "sessionId": "of an older version"})),
            ("5.key", json!({"pid": own, "sessionId": "another file"})),
        ];
        for (name, record) in records {
            fs::write(sessions.join(name), record.to_string()).unwrap();
        }
        fs::write(sessions.join("6.json"), "{").unwrap();
        nix::unistd::mkfifo(&sessions.join("7.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let opened = Opened::now(Some(folder.path()));
        let mut known: Vec<_> = opened.claude.keys().map(String::as_str).collect();
        known.sort_unstable();
        assert_eq!(known, ["of an older version", "runs"]);
        assert_eq!(opened.process_of("runs", None), Some(own));
    }
}
