//! How programs of the same user ask the host on this machine: one JSON value per line, over a Unix socket that only this user can
//! open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_agent::McpServer;
use ensemble_protocol::transcript::digest;
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::settings::Environment;

/// The longest request and answer in bytes.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// A start makes calls to the server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Begin a session.
    Start(Start),
    /// Begin the session of `ensemble demo`. It comes this way alone, as the MCP servers do.
    Demo { session: SessionId },
    /// From its agent's next start on, a session has these MCP servers.
    McpServers { session: SessionId, servers: Vec<McpServer> },
    /// End when the turns have ended, because another program of this machine is to host its sessions.
    Leave,
}

/// A session to begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// The name of the agent, as in `claude`.
    pub agent: String,
    /// An absolute path.
    pub directory: PathBuf,
    pub mode: Mode,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub title: Option<String>,
    /// The agent's own id of a conversation to resume.
    #[serde(default)]
    pub resume: Option<String>,
    /// A copy of it is continued.
    #[serde(default)]
    pub fork: bool,
    /// When the session has cost this much, in US dollars, people are asked before the next turn begins.
    #[serde(default)]
    pub max_cost_usd: Option<f64>,
    /// The variables of the terminal in which a person begins it. The agent inherits of them what the host's configuration lets it.
    /// Without them it inherits from the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// What an editor of this user has for the agent. They name commands, so they come this way alone: no other device and no server
    /// can give any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
}

/// What the host answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The session exists, and its agent is being started.
    Started(SessionId),
    /// The session has its servers.
    Kept,
    Leaving,
    /// It was not done. The text says why and what to do.
    Refused(String),
}

/// In the folder of a host: leads to its sockets, where their paths would be too long in the folder itself.
const LINK: &str = "sockets";
/// The longest path of a socket in bytes: 103 on macOS, 107 on Linux (unix(7)).
const LONGEST_PATH: usize = 103;
/// The longest name of a socket, with the separator.
const LONGEST_NAME: usize = 11;

/// In the folder of the sockets.
pub(super) fn socket(sockets: &Path) -> PathBuf {
    sockets.join("socket")
}

/// Chooses where the sockets of a host are: in its folder, or in a short one of this user that is found by the folder's hash.
///
/// # Errors
/// No folder is short enough and this user's alone.
pub(super) fn place_sockets(folder: &Path, environment: &Environment) -> io::Result<PathBuf> {
    let link = folder.join(LINK);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let is_short = |path: &Path| path.as_os_str().len() + LONGEST_NAME <= LONGEST_PATH;
    if is_short(folder) {
        return Ok(folder.to_owned());
    }
    let hash: String = digest(&folder.display().to_string()).chars().take(16).collect();
    let given = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(|name| environment.get(name)).map(PathBuf::from);
    let mut problem =
        io::Error::other(format!("{} is too long for a socket, and so is each other place", folder.display()));
    for base in given.filter(|base| base.is_absolute()).chain([PathBuf::from("/tmp")]) {
        let short = base.join(format!("ensemble-{hash}"));
        if !is_short(&short) {
            continue;
        }
        match make_private(&short).and_then(|()| symlink(&short, &link)) {
            Ok(()) => return Ok(short),
            Err(error) => problem = io::Error::new(error.kind(), format!("{}: {error}", short.display())),
        }
    }
    Err(problem)
}

/// Another user could have made it first.
fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = fs::symlink_metadata(path)?;
    let is_ours = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if is_ours { Ok(()) } else { Err(io::Error::other("it is not a folder of this user alone")) }
}

/// Connects to the host that keeps its sessions in this folder.
///
/// # Errors
/// No host listens there.
pub async fn connect(folder: &Path) -> io::Result<UnixStream> {
    let path = socket(&fs::read_link(folder.join(LINK)).unwrap_or_else(|_| folder.to_owned()));
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(io::ErrorKind::NotFound.into());
    }
    UnixStream::connect(path).await
}

/// Whether a host listens within this time. Without one that is starting, it answers at once.
pub async fn listens_within(folder: &Path, time: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + time;
    loop {
        if connect(folder).await.is_ok() {
            return true;
        }
        // A program that starts to host has the lock before anything else.
        let is_starting = super::place::lock(folder).is_ok_and(|lock| lock.is_none());
        if !is_starting || tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
}

/// Asks the host that keeps its sessions in this folder.
///
/// # Errors
/// No host listens there, or it does not answer within a minute.
pub async fn ask(folder: &Path, request: &Request) -> io::Result<Answer> {
    let asked = async {
        let mut stream = connect(folder).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(stream.take(MOST_BYTES)).read_line(&mut answer).await?;
        serde_json::from_str(&answer).map_err(io::Error::other)
    };
    tokio::time::timeout(ANSWERS_WITHIN, asked).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_folder_with_a_long_path_has_its_sockets_in_a_short_one_of_this_user() {
        let base = tempfile::tempdir_in("/tmp").unwrap();
        let folder = base.path().join("a".repeat(90)).join("hosts");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(connect(&folder).await.unwrap_err().kind(), io::ErrorKind::NotFound, "a host is started then");
        let runtime = base.path().join("run");
        fs::create_dir(&runtime).unwrap();
        let environment = Environment::from([("XDG_RUNTIME_DIR".to_owned(), runtime.display().to_string())]);
        let sockets = place_sockets(&folder, &environment).unwrap();
        assert!(sockets.starts_with(&runtime), "{}", sockets.display());
        assert_eq!(fs::metadata(&sockets).unwrap().permissions().mode() & 0o777, 0o700);
        let listener = tokio::net::UnixListener::bind(socket(&sockets)).unwrap();
        assert!(connect(&folder).await.is_ok());
        drop(listener);

        // A folder that others can enter is not used.
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o755)).unwrap();
        let elsewhere = place_sockets(&folder, &environment).unwrap();
        assert!(elsewhere.starts_with("/tmp") && !elsewhere.starts_with(&runtime), "{}", elsewhere.display());
        fs::remove_dir(elsewhere).unwrap();

        let short = base.path().join("hosts");
        fs::create_dir(&short).unwrap();
        assert_eq!(place_sockets(&short, &environment).unwrap(), short);
    }

    #[tokio::test]
    async fn a_host_that_is_starting_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!listens_within(folder.path(), Duration::from_secs(60)).await, "nothing starts");
        let lock = super::super::place::lock(folder.path()).unwrap().unwrap();
        let waiting = tokio::spawn({
            let path = folder.path().to_owned();
            async move { listens_within(&path, Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        let _listener = tokio::net::UnixListener::bind(socket(folder.path())).unwrap();
        assert!(waiting.await.unwrap());
        drop(lock);
    }
}
