//! The program on this computer that hosts its sessions: the runner, or one that is started in the background for sessions only.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ensemble_account::this_machine::Secret;
use ensemble_account::{Account, Home};
use ensemble_agent::McpServer;
use ensemble_host::local::{self, Answer, Request};
pub use ensemble_process::this_program;
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::line::inline;
use ensemble_types::sessions::{Session, SessionStatus};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::error::{Error, Result};

/// The line that a host prints when sessions can be started.
pub const READY: &str = "ready";
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOG: &str = "host.log";

/// The sessions of an account on this computer.
pub struct LocalSessions<'a> {
    pub home: &'a Home,
    pub me: &'a Account,
    /// `PROGRAM runner host` is a host.
    pub program: &'a Path,
    /// Gets why a session that can be read has no host.
    pub asleep: fn(Error),
}

/// The folder of the sessions that this computer hosts as this machine.
pub fn folder(home: &Home, machine: &MachineId) -> PathBuf {
    home.path().join("hosts").join(machine.as_str())
}

impl LocalSessions<'_> {
    /// Begins a session on this computer, and starts a host if none runs.
    pub async fn start(&self, request: Request) -> Result<SessionId> {
        let machine = self.me.this_machine()?;
        let asked = match &machine {
            Some(machine) => local::ask(&folder(self.home, machine), &request).await,
            None => Err(io::ErrorKind::NotFound.into()),
        };
        let answer = match asked {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                let folder = self.begin().await?;
                local::ask(&folder, &request).await
            }
            answer => answer,
        };
        match answer {
            Ok(Answer::Started(session)) => Ok(session),
            Ok(Answer::Refused(why)) => Err(Error::sentence(why)),
            Ok(Answer::Leaving | Answer::Kept) => {
                Err(Error::sentence("The program that hosts sessions here is about to end. Try again."))
            }
            Err(error) => {
                Err(Error::sentence(format!("The program that hosts sessions here does not answer: {error}.")))
            }
        }
    }

    /// Has the agent of a session of this computer use the MCP servers of an editor. Returns why it does not: `elsewhere` when the session is
    /// not one of this computer.
    pub async fn keep_servers(&self, id: SessionId, servers: Vec<McpServer>, elsewhere: &str) -> Option<String> {
        let (me, is_empty) = (self.me, servers.is_empty());
        let session = me.client.session(id).await.ok()?;
        let this = me.this_machine().ok().flatten();
        let Some(machine) = this.filter(|this| session.machine_id.as_ref() == Some(this) && session.owner_id == me.id)
        else {
            return Some(elsewhere.to_owned()).filter(|_| !is_empty);
        };
        // Nothing starts in a session that has ended.
        if session.status == SessionStatus::Ended {
            return None;
        }
        if !is_empty {
            self.wake(&session).await;
        }
        let request = Request::McpServers { session: id, servers };
        match local::ask(&folder(self.home, &machine), &request).await {
            Ok(Answer::Kept) => None,
            // No host has any for it.
            _ if is_empty => None,
            Ok(Answer::Refused(why)) => Some(format!("The MCP servers of the editor are not passed on: {why}")),
            Ok(_) => Some("The MCP servers of the editor are not passed on.".to_owned()),
            Err(error) => Some(format!("The MCP servers of the editor are not passed on: {error}.")),
        }
    }

    /// Starts a host if this session is one of this computer and has none: its host was killed, or the computer was restarted.
    pub async fn wake(&self, session: &Session) {
        let me = self.me;
        let this = me.this_machine().ok().flatten();
        let Some(machine) = this.filter(|this| session.machine_id.as_ref() == Some(this)) else { return };
        let is_ended = session.status == SessionStatus::Ended;
        if is_ended || session.owner_id != me.id || local::connect(&folder(self.home, &machine)).await.is_ok() {
            return;
        }
        if let Err(error) = self.begin().await {
            (self.asleep)(error);
        }
    }

    /// Registers this computer as a machine, and starts a host in the background.
    async fn begin(&self) -> Result<PathBuf> {
        let me = self.me;
        let registered = me.register_this(None).await?;
        if matches!(registered.credential, Secret::Token(_)) {
            return Err(Error::sentence(
                "This computer is a linked device, and its machine has no key in your account yet. Run `ensemble link` on your first \
                 device and `ensemble runner link` here.",
            ));
        }
        let folder = folder(self.home, &registered.machine.id);
        let unusable = |error: io::Error| Error::sentence(format!("Cannot use {}: {error}.", folder.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unusable)?;
        let log = File::options().create(true).append(true).mode(0o600).open(folder.join(LOG)).map_err(unusable)?;
        let mut child = Command::new(self.program)
            .args(["runner", "host"])
            .env("ENSEMBLE_HOME", self.home.path())
            .env("ENSEMBLE_SERVER", me.client.base().as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(unusable)?;
        let stdout = child.stdout.take().ok_or_else(|| Error::sentence("The host has no output."))?;
        let mut line = String::new();
        let mut lines = BufReader::new(stdout);
        let ready = tokio::time::timeout(READY_WITHIN, lines.read_line(&mut line)).await;
        match ready {
            Ok(Ok(_)) if line.trim() == READY => Ok(folder),
            // A runner that starts at the same time hosts the sessions, and the program that was started here has ended.
            _ if local::listens_within(&folder, READY_WITHIN).await => Ok(folder),
            _ => Err(not_started(&folder)),
        }
    }
}

fn not_started(folder: &Path) -> Error {
    let path = folder.join(LOG);
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Error::sentence(format!(
        "The program that hosts sessions here did not start: {}. Its log is {}.",
        inline(last),
        path.display()
    ))
}
