//! The host's side of the socket for programs of the same user.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

use super::Host;
use super::local::{self, Answer, MOST_BYTES, Request};

/// A program that connects and asks nothing is not waited for.
const ASKS_WITHIN: Duration = Duration::from_secs(10);
/// A program that has just started listens within this time.
const OPENS_WITHIN: Duration = Duration::from_secs(20);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The next program that connects. Never resolves without a listener.
pub(super) async fn accept(listener: Option<&UnixListener>) -> io::Result<(UnixStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Listens in the folder, which only this user can enter. The lock is held, so a socket that is there is of a process that has
/// ended.
pub(super) fn listen(folder: &Path) -> io::Result<UnixListener> {
    let path = local::socket(folder);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers one request.
pub(super) async fn serve(host: Arc<Host>, mut stream: UnixStream) {
    let answer = match tokio::time::timeout(ASKS_WITHIN, read(&mut stream)).await {
        Ok(Ok(Request::Start(start))) => match host.start(start).await {
            Ok(session) => Answer::Started(session),
            Err(why) => Answer::Refused(why.to_string()),
        },
        Ok(Ok(Request::Demo { session })) => match host.demo(session).await {
            Ok(session) => Answer::Started(session),
            Err(why) => Answer::Refused(why.to_string()),
        },
        Ok(Ok(Request::McpServers { session, servers })) => match host.keep_servers(session, servers).await {
            Ok(()) => Answer::Kept,
            Err(why) => Answer::Refused(why),
        },
        Ok(Ok(Request::Leave)) if host.is_for_sessions_only() => {
            host.drain.begin();
            Answer::Leaving
        }
        Ok(Ok(Request::Leave)) => Answer::Refused("A runner hosts the sessions here, and it stays.".to_owned()),
        Ok(Err(error)) => Answer::Refused(format!("The request cannot be read: {error}.")),
        Err(_) => return,
    };
    let Ok(mut line) = serde_json::to_vec(&answer) else { return };
    line.push(b'\n');
    // A program that has ended does not read its answer.
    let _ = stream.write_all(&line).await;
}

async fn read(stream: &mut UnixStream) -> io::Result<Request> {
    let mut line = String::new();
    BufReader::new(stream.take(MOST_BYTES)).read_line(&mut line).await?;
    serde_json::from_str(&line).map_err(io::Error::other)
}

/// Waits until the program that has the lock listens. There is no event for it, and it takes a moment.
pub(super) async fn is_open(folder: &Path) -> Result<(), String> {
    let opened = async {
        while local::connect(folder).await.is_err() {
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
    };
    let waited = tokio::time::timeout(OPENS_WITHIN, opened).await;
    waited.map_err(|_| "another program of this machine hosts its sessions, and does not answer".to_owned())
}

/// Asks the host of this folder to end.
pub(super) async fn leave(folder: &Path) -> io::Result<Answer> {
    super::local::ask(folder, &Request::Leave).await
}
