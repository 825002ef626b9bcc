//! How programs of the same user ask the host on this machine: one JSON value per line, over a Unix socket that only this user can
//! open.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_transcript::words::Mode;
use ensemble_types::ids::SessionId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// The longest request and answer in bytes.
pub(crate) const MOST_BYTES: u64 = 1 << 20;

/// A start makes calls to the server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Begin a session.
    Start(Start),
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
    /// The agent's own id of a conversation to go on with.
    #[serde(default)]
    pub resume: Option<String>,
    /// People are asked before a turn begins when the session has cost so much, in US dollars.
    #[serde(default)]
    pub max_cost_usd: Option<f64>,
}

/// What the host answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The session exists, and its agent is being started.
    Started(SessionId),
    Leaving,
    /// It was not done. The text says why and what to do.
    Refused(String),
}

/// The socket of the host that keeps its sessions in this folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// Asks the host that keeps its sessions in this folder.
///
/// # Errors
/// No host listens there, or it does not answer within a minute.
pub async fn ask(folder: &Path, request: &Request) -> io::Result<Answer> {
    let asked = async {
        let mut stream = UnixStream::connect(socket(folder)).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(stream.take(MOST_BYTES)).read_line(&mut answer).await?;
        serde_json::from_str(&answer).map_err(io::Error::other)
    };
    tokio::time::timeout(ANSWERS_WITHIN, asked).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
