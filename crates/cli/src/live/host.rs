//! The program on this computer that hosts its sessions: the runner, or one that is started in the background for sessions only.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ensemble_account::Account;
use ensemble_account::this_machine::Secret;
use ensemble_acp::ELSEWHERE;
use ensemble_agent::McpServer;
use ensemble_host::local::{self, Answer, Request};
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::sessions::{Session, SessionStatus};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::home::Home;
use crate::print;

/// The line that a host prints when sessions can be started.
pub(crate) const READY: &str = "ready";
const READY_WITHIN: Duration = Duration::from_secs(30);
const LOG: &str = "host.log";

/// The folder of the sessions that this computer hosts as this machine.
pub(crate) fn folder(home: &Home, machine: &MachineId) -> PathBuf {
    home.path().join("hosts").join(machine.as_str())
}

/// Begins a session on this computer, and starts a host if none runs.
pub(crate) async fn start(context: &Context, me: &Account, request: Request) -> Result<SessionId> {
    let machine = me.this_machine()?;
    let asked = match &machine {
        Some(machine) => local::ask(&folder(&context.home, machine), &request).await,
        None => Err(io::ErrorKind::NotFound.into()),
    };
    let answer = match asked {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            let folder = begin(context, me).await?;
            local::ask(&folder, &request).await
        }
        answer => answer,
    };
    match answer {
        Ok(Answer::Started(session)) => Ok(session),
        Ok(Answer::Refused(why)) => Err(Failure::message(why)),
        Ok(Answer::Leaving | Answer::Kept) => {
            Err(Failure::message("The program that hosts sessions here is about to end. Try again."))
        }
        Err(error) => Err(Failure::message(format!("The program that hosts sessions here does not answer: {error}."))),
    }
}

/// What an agent may inherit of this terminal. Our own variables name servers and keys of this program.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let mut environment = crate::environment::environment();
    environment.retain(|name, _| !name.starts_with("ENSEMBLE_"));
    environment
}

/// Has the agent of a session of this computer use the MCP servers of an editor. Returns why it does not.
pub(crate) async fn keep_servers(
    context: &Context,
    me: &Account,
    id: SessionId,
    servers: Vec<McpServer>,
) -> Option<String> {
    let is_empty = servers.is_empty();
    let session = me.client.session(id).await.ok()?;
    let this = me.this_machine().ok().flatten();
    let Some(machine) = this.filter(|this| session.machine_id.as_ref() == Some(this) && session.owner_id == me.id)
    else {
        return Some(ELSEWHERE.to_owned()).filter(|_| !is_empty);
    };
    // Nothing starts in a session that has ended.
    if session.status == SessionStatus::Ended {
        return None;
    }
    if !is_empty {
        wake(context, me, &session).await;
    }
    let request = Request::McpServers { session: id, servers };
    match local::ask(&folder(&context.home, &machine), &request).await {
        Ok(Answer::Kept) => None,
        // No host has any for it.
        _ if is_empty => None,
        Ok(Answer::Refused(why)) => Some(format!("The MCP servers of the editor are not passed on: {why}")),
        Ok(_) => Some("The MCP servers of the editor are not passed on.".to_owned()),
        Err(error) => Some(format!("The MCP servers of the editor are not passed on: {error}.")),
    }
}

/// Starts a host if this session is one of this computer and has none: its host was killed, or the computer was restarted.
pub(crate) async fn wake(context: &Context, me: &Account, session: &Session) {
    let this = me.this_machine().ok().flatten();
    let Some(machine) = this.filter(|this| session.machine_id.as_ref() == Some(this)) else { return };
    let is_ended = session.status == SessionStatus::Ended;
    if is_ended || session.owner_id != me.id || local::connect(&folder(&context.home, &machine)).await.is_ok() {
        return;
    }
    if let Err(failure) = begin(context, me).await {
        print::note(format!("The session can be read, but its agent does not work: {failure}"));
    }
}

/// Registers this computer as a machine, and starts a host in the background.
async fn begin(context: &Context, me: &Account) -> Result<PathBuf> {
    let registered = me.register_this(None).await?;
    if matches!(registered.credential, Secret::Token(_)) {
        return Err(Failure::message(
            "This computer is a linked device, and its machine has no key in your account yet. Run `ensemble link` on your first \
             device and `ensemble runner link` here.",
        ));
    }
    let folder = folder(&context.home, &registered.machine.id);
    let unusable = |error: io::Error| Failure::message(format!("Cannot use {}: {error}.", folder.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unusable)?;
    let log = File::options().create(true).append(true).mode(0o600).open(folder.join(LOG)).map_err(unusable)?;
    let program = std::env::current_exe().map_err(unusable)?;
    let mut child = Command::new(program)
        .args(["runner", "host"])
        .env("ENSEMBLE_HOME", context.home.path())
        .env("ENSEMBLE_SERVER", me.client.base().as_str())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(unusable)?;
    let stdout = child.stdout.take().ok_or_else(|| Failure::message("The host has no output."))?;
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

fn not_started(folder: &Path) -> Failure {
    let path = folder.join(LOG);
    let log = std::fs::read_to_string(&path).unwrap_or_default();
    let last = log.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Failure::message(format!(
        "The program that hosts sessions here did not start: {}. Its log is {}.",
        print::inline(last),
        path.display()
    ))
}
