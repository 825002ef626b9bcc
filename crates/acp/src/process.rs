//! The process around the core: lines in, lines out, and the sessions in between.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use ensemble_account::Error as AccountError;
use ensemble_account::sessions::{Named, Titles};
use ensemble_agent::Lines;
use ensemble_client::{SessionFilter, idempotency_key};
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::Session;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::computer::LocalHost;
use super::core::{Core, Order};
use super::rpc::{Error, INTERNAL};
use super::session::{self, Command, Report, Reports, error_of};

/// Reports of all sessions that wait.
const MOST_REPORTS: usize = 256;
/// Commands of one session that wait to be sent.
const MOST_COMMANDS: usize = 64;
/// An editor that reads nothing for this long is gone.
const READS_WITHIN: Duration = Duration::from_secs(600);
/// After its end of input an editor is gone. What it has sent is finished in this time.
const FINISHES_WITHIN: Duration = Duration::from_secs(5);
/// Sessions on a page.
const PAGE: u32 = 50;
/// A directory that an editor lists must answer in this time.
const LISTS_WITHIN: Duration = Duration::from_secs(60);

/// The sessions that `session/new` gives.
#[derive(Clone, Debug)]
pub struct Which {
    /// Always this one.
    pub session: Option<Named>,
    /// A new one on another machine than this computer.
    pub is_elsewhere: bool,
    /// The directory, when it is not that of the editor.
    pub directory: Option<PathBuf>,
}

impl Which {
    /// Where a new session works. A path on another machine is not one of this computer.
    pub(super) fn directory(&self, cwd: PathBuf) -> PathBuf {
        match &self.directory {
            None => cwd,
            Some(directory) if self.is_elsewhere => directory.clone(),
            Some(directory) => cwd.join(directory),
        }
    }
}

/// What has ended.
enum Ended {
    Session,
    Asked(u64, Result<Value, Error>),
}

type Task<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

struct Process<'a, H, O> {
    host: &'a H,
    which: &'a Which,
    core: Core,
    out: O,
    reports: mpsc::Sender<(u64, Report)>,
    tasks: FuturesUnordered<Task<'a>>,
    /// Sessions that are being opened, by their tickets.
    opening: HashMap<u64, mpsc::Sender<Command>>,
    /// Open sessions, with the tickets that opened them.
    open: HashMap<SessionId, (u64, mpsc::Sender<Command>)>,
    /// Commands that the server may not have yet, by their `localId`.
    unsent: HashSet<String>,
}

/// Serves the editor until it closes `input` or `out`, or until `ended`. The sessions continue.
pub async fn run<H: LocalHost>(
    host: &H,
    which: &Which,
    (mut input, out): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    ended: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut ended = pin!(ended);
    let (to, mut reports) = mpsc::channel(MOST_REPORTS);
    let mut process = Process {
        host,
        which,
        core: Core::new(Instant::now(), Box::new(idempotency_key)),
        out,
        reports: to,
        tasks: FuturesUnordered::new(),
        opening: HashMap::new(),
        open: HashMap::new(),
        unsent: HashSet::new(),
    };
    let mut lines = Lines::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        process.carry_out().await?;
        let deadline = process.core.deadline();
        let late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = input.read(&mut buffer) => {
                let core = &mut process.core;
                let now = Instant::now();
                match read {
                    Ok(0) | Err(_) => {
                        lines.finish(|line| core.line(&line, now));
                        break;
                    }
                    Ok(length) => {
                        lines.feed(buffer.get(..length).unwrap_or_default(), |line| core.line(&line, now));
                    }
                }
            }
            Some((ticket, report)) = reports.recv() => process.report(ticket, report),
            Some(done) = process.tasks.next() => {
                if let Ended::Asked(ticket, result) = done {
                    process.core.answered(ticket, result);
                }
            }
            () = late => process.core.tick(Instant::now()),
            () = &mut ended => return Ok(()),
        }
    }
    // The editor may have closed its output as well.
    let unread = process.carry_out().await;
    tokio::select! {
        _late = tokio::time::timeout(FINISHES_WITHIN, process.finish(&mut reports)) => unread,
        () = &mut ended => Ok(()),
    }
}

impl<H: LocalHost, O: AsyncWrite + Unpin> Process<'_, H, O> {
    /// Continues until the server has what was sent, above all what interrupts a turn.
    async fn finish(&mut self, reports: &mut mpsc::Receiver<(u64, Report)>) {
        while !self.unsent.is_empty() || self.core.owes_interrupt() {
            tokio::select! {
                Some((ticket, report)) = reports.recv() => self.report(ticket, report),
                Some(_) = self.tasks.next() => {}
                else => return,
            }
            for order in self.core.take() {
                self.order(order);
            }
        }
    }

    async fn carry_out(&mut self) -> io::Result<()> {
        let mut text = Vec::new();
        loop {
            let orders = self.core.take();
            if orders.is_empty() {
                break;
            }
            for order in orders {
                if let Order::Write(message) = &order {
                    // Only a map with keys that are no texts cannot be written.
                    serde_json::to_writer(&mut text, message)?;
                    text.push(b'\n');
                    if text.len() > (1 << 20) {
                        self.write(&text).await?;
                        text.clear();
                    }
                } else {
                    self.order(order);
                }
            }
        }
        self.write(&text).await
    }

    async fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let written = async {
            self.out.write_all(text).await?;
            self.out.flush().await
        };
        match tokio::time::timeout(READS_WITHIN, written).await {
            Ok(written) => written,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the editor has read nothing for ten minutes")),
        }
    }

    fn order(&mut self, order: Order) {
        let host = self.host;
        match order {
            // Written by the caller.
            Order::Write(_) => {}
            Order::Open { ticket, wanted, servers } => {
                let (commands, received) = mpsc::channel(MOST_COMMANDS);
                self.opening.insert(ticket, commands);
                let (which, reports) = (self.which, Reports { ticket, to: self.reports.clone() });
                self.tasks.push(Box::pin(async move {
                    session::follow(host, which, (wanted, servers), reports, received).await;
                    Ended::Session
                }));
            }
            Order::List { ticket, directory, cursor } => self.tasks.push(Box::pin(async move {
                let listed = tokio::time::timeout(LISTS_WITHIN, list(host, directory, cursor)).await;
                let listed = listed.unwrap_or_else(|_| Err(Error::new(INTERNAL, "The server does not answer.")));
                Ended::Asked(ticket, listed)
            })),
            Order::SignedIn { ticket } => self
                .tasks
                .push(Box::pin(async move { Ended::Asked(ticket, session::sign_in(host).await.map(|_| json!({}))) })),
            Order::Send { session, local_id, content } => {
                let sent = self
                    .open
                    .get(&session)
                    .map(|(_, commands)| commands.try_send(Command::Send(local_id.clone(), content)).is_ok());
                if sent == Some(true) {
                    self.unsent.insert(local_id);
                } else {
                    let why = "It was not sent: too many commands wait for the server.";
                    self.core.failed(session, &local_id, why, Instant::now());
                }
            }
            Order::Wake(session) => {
                if let Some((_, commands)) = self.open.get(&session) {
                    // A full queue wakes it too.
                    let _full = commands.try_send(Command::Wake);
                }
            }
            Order::Leave(session) => drop(self.open.remove(&session)),
            Order::Log(text) => host.note(&text),
        }
    }

    fn report(&mut self, ticket: u64, report: Report) {
        let now = Instant::now();
        if let Report::Stored(_, local_id) | Report::Failed(_, local_id, _) = &report {
            self.unsent.remove(local_id);
        }
        let is_of = |session: &SessionId| self.open.get(session).is_some_and(|(opened, _)| *opened == ticket);
        match report {
            Report::Opened(opened) => {
                let commands = self.opening.remove(&ticket);
                if let (Ok(opening), Some(commands)) = (&opened, commands) {
                    self.open.insert(opening.id, (ticket, commands));
                }
                self.core.opened(ticket, opened, now);
            }
            // What comes from before the session was opened again is dropped.
            Report::Event(session, event) if is_of(&session) => self.core.event(session, event, now),
            Report::Event(..) => {}
            // The session may have been opened again since: what was sent before is known by its id.
            Report::Failed(session, local_id, why) => self.core.failed(session, &local_id, &why, now),
            Report::Stored(session, local_id) => self.core.stored(session, &local_id, now),
        }
    }
}

/// A page of the live sessions, those of a directory only if one is named.
async fn list<H: LocalHost>(host: &H, directory: Option<String>, cursor: Option<String>) -> Result<Value, Error> {
    let me = session::sign_in(host).await?;
    let titles = Titles::of(&me).map_err(error_of::<H>)?;
    let filter = SessionFilter { active_only: true, shared: true };
    let page = me.client.session_page(filter, Some(PAGE), cursor.as_deref()).await;
    let page = page.map_err(|error| error_of::<H>(AccountError::from(error)))?;
    let entry = async |session: &Session| {
        let titled = titles.title(session).await;
        let is_wanted = |path: &&str| path.starts_with('/') && directory.as_ref().is_none_or(|wanted| wanted == path);
        let path = titled.directory().filter(is_wanted)?;
        Some(json!({"sessionId": session.id, "cwd": path, "title": titled.title(), "updatedAt": session.updated_at}))
    };
    let mut sessions = Vec::new();
    for session in page.sessions.iter().filter(|session| session.hosted) {
        sessions.extend(entry(session).await);
    }
    titles.keep().map_err(error_of::<H>)?;
    Ok(json!({"sessions": sessions, "nextCursor": page.next_cursor}))
}
