//! The protocol between runner and guard: one JSON value per line, over the socket that is the guard's standard input.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The argument with which the guard's program becomes the provider's program.
pub(crate) const STAGE: &str = "exec";

/// The exit code of a stage that could not start the provider's program. The reason is on standard error.
pub const EXIT_STAGE: i32 = 125;

pub(crate) const EXIT_USAGE: i32 = 64;

/// The line that ends an attempt. It is followed by the milliseconds between TERM and KILL.
pub(crate) const STOP: &str = "stop";

/// The line that writes to an interactive program's standard input. It is followed by the text as a JSON string.
pub(crate) const WRITE: &str = "write";

/// The line that closes an interactive program's standard input.
pub(crate) const CLOSE: &str = "close";

/// The line after which the program outlives the runner. It is followed by the milliseconds in which another runner has to connect.
pub(crate) const STAY: &str = "stay";

/// What to run. The first line from the runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The command of the stage: the guard's own program and arguments.
    pub(crate) stage: Vec<String>,
    pub(crate) launch: Launch,
    /// Written to the program's standard input.
    pub(crate) prompt: String,
    /// The standard input stays open after the prompt, and [`WRITE`] adds to it.
    #[serde(default)]
    pub(crate) interactive: bool,
    /// The Unix socket at which another runner connects after [`STAY`]. The guard keeps what such a program writes to standard error.
    #[serde(default)]
    pub(crate) door: Option<PathBuf>,
    /// The program's own folder for temporary files, which is removed after it.
    #[serde(default)]
    pub(crate) scratch: Option<PathBuf>,
    /// Milliseconds between TERM and KILL when the end is not ordered by the runner.
    pub(crate) grace_ms: u64,
    /// The same for processes that are left after the program has exited.
    pub(crate) leftover_grace_ms: u64,
}

/// What the stage needs to start the program.
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

/// A working directory below an allowed root. Neither part contains symbolic links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    pub root: PathBuf,
    /// Empty for the root itself.
    pub below: PathBuf,
}

/// Limits on each process of an attempt. An absent limit is that of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Bytes of the largest file that it may write.
    pub file_bytes: Option<u64>,
    /// Processes of the user, not only of this attempt. Only on Linux.
    pub processes: Option<u64>,
}

/// A report from the guard to the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Report {
    /// The program started with this process id, and leads its own process group.
    Started { pid: i32 },
    /// The program could not be started.
    NotStarted { reason: String },
    /// The program ended with a code or by a signal, and none of its processes is left.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        /// The end of its standard error, where the guard keeps it.
        #[serde(default)]
        said: String,
    },
    /// The guard listens for another runner.
    Stays,
}
