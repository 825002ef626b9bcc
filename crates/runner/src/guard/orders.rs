//! What the runner and the guard say to each other: one JSON value per line, over the socket that is the guard's
//! standard input.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The argument that makes the guard's program turn into the provider's program.
pub(crate) const STAGE: &str = "exec";

/// The exit code of a stage that could not become the provider's program; its reason is on standard error.
pub(crate) const EXIT_STAGE: i32 = 125;

pub(crate) const EXIT_USAGE: i32 = 64;

/// The line with which the runner ends an attempt; the milliseconds between TERM and KILL follow it.
pub(crate) const STOP: &str = "stop";

/// What to run, and how. The first line from the runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// How to start the stage: the guard's own program and arguments.
    pub(crate) stage: Vec<String>,
    pub(crate) launch: Launch,
    /// Goes to the program's standard input, which is then closed.
    pub(crate) prompt: String,
    /// Between TERM and KILL, in milliseconds, when it is not the runner that orders the end.
    pub(crate) grace_ms: u64,
    /// The same for what is left when the program has ended by itself.
    pub(crate) leftover_grace_ms: u64,
}

/// What the stage needs to become the program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: Directory,
    pub(crate) limits: Limits,
    /// Keeps set-user-id programs from gaining rights (Linux `no_new_privs`).
    pub(crate) no_new_privileges: bool,
}

/// A working directory as a path below a root that the owner of the machine allows. Both are free of symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    /// Empty for the root itself.
    pub(crate) below: PathBuf,
}

/// Limits on each process of an attempt; absent means the system's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Bytes of the largest file that it may write.
    pub file_bytes: Option<u64>,
    /// Processes of the user, not only of this attempt. On Linux only.
    pub processes: Option<u64>,
}

/// What the guard tells the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    /// The program was started as this process, which leads its own group.
    Started { pid: i32 },
    /// It could not be started.
    NotStarted { reason: String },
    /// The program has ended, with a code or by a signal, and nothing that it started is left.
    Ended { code: Option<i32>, signal: Option<i32> },
}
