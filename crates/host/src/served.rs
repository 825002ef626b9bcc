//! Agents that are servers: one process for the sessions of this machine, to which each of them connects. Its guard outlives an
//! orderly end of this program for a while, so that turns continue until the next one connects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ensemble_agent::{Checkpoint, Exit, LONGEST, Line};
use ensemble_process::disk::{on_disk, replace};
use ensemble_process::{self as process, Directory, Process, orphans};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use uuid::Uuid;

use crate::agent::{Happened, Known, exit_of};
use crate::settings::{Environment, Settings};

/// A server listens within this time after its start.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// A guard confirms the order to stay.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The beginnings of variables that differ from terminal to terminal and mean nothing to a server.
const OF_A_TERMINAL: [&str; 6] =
    ["SSH_AUTH_SOCK", "TERM", "XDG_ACTIVATION_TOKEN", "XDG_SEAT", "XDG_SESSION_", "XDG_VTNR"];

/// An agent and its variables.
type Name = (String, Environment);

/// The servers of this machine.
pub(crate) struct Servers {
    folder: PathBuf,
    /// The newest one of each agent, for each set of variables: with them come the account and the bill.
    current: Mutex<BTreeMap<Name, Weak<Server>>>,
    /// Those of an earlier process, until its sessions have connected again.
    adopted: Mutex<Vec<Arc<Server>>>,
    /// Those to which a session has left its turn.
    left: Mutex<Vec<Arc<Server>>>,
}

/// A server that runs. It ends when the last reference is dropped.
pub(crate) struct Server {
    id: Uuid,
    folder: PathBuf,
    orders: mpsc::Sender<Order>,
    exit: watch::Receiver<Option<Exit>>,
}

enum Order {
    Stop,
    Kill,
    /// It continues without this program for this long.
    Stay(Duration),
}

/// A turn that a session has left to a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) server: Uuid,
    pub(crate) checkpoint: Checkpoint,
}

/// A session's connection to a server.
pub(crate) struct Connection {
    stream: WebSocketStream<UnixStream>,
    server: Arc<Server>,
    is_closed: bool,
}

/// Why there is no connection.
pub(crate) enum NotServed {
    /// The agent is no server, or not in this version or here. It is started for the session alone.
    Unknown,
    Failed(String),
}

impl From<String> for NotServed {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The end of each name in the folder. Names are short: the path of a socket has at most 107 bytes (unix(7)).
fn short(id: Uuid) -> String {
    id.simple().to_string().chars().rev().take(8).collect()
}

/// Where sessions connect to the server.
fn socket(folder: &Path, id: Uuid) -> PathBuf {
    folder.join(format!("a-{}", short(id)))
}

/// Where another program connects to the server's guard.
fn door(folder: &Path, id: Uuid) -> PathBuf {
    folder.join(format!("g-{}", short(id)))
}

/// Says that the server runs. It has the whole id.
fn note(folder: &Path, id: Uuid) -> PathBuf {
    folder.join(format!("server-{}.json", short(id)))
}

impl Servers {
    /// Takes over the servers that continued without a program, and ends what is left of the others. `folder` is this program's
    /// alone.
    pub(crate) async fn open(settings: &Settings, folder: PathBuf) -> Self {
        let mut adopted = Vec::new();
        for id in noted(folder.clone()).await {
            let taken = async { Process::adopt(id, UnixStream::connect(door(&folder, id)).await?).await };
            match taken.await {
                Ok(process) => adopted.push(Server::run(settings, folder.clone(), process)),
                Err(_) => {
                    orphans::end(id, Duration::ZERO).await;
                    forget(folder.clone(), id).await;
                }
            }
        }
        if !adopted.is_empty() {
            tracing::info!(servers = adopted.len(), "Agents have continued without this program");
        }
        Self { folder, current: Mutex::default(), adopted: Mutex::new(adopted), left: Mutex::default() }
    }

    /// Connects to the server of the agent that has these variables. It is started if none runs.
    pub(crate) async fn connect(
        &self,
        settings: &Settings,
        name: &str,
        agent: &Known,
        environment: &Environment,
    ) -> Result<Connection, NotServed> {
        let mut current = self.current.lock().await;
        let mut variables = agent.env(environment, &BTreeMap::new());
        variables.retain(|name, _| !OF_A_TERMINAL.iter().any(|known| name.starts_with(known)));
        let key = (name.to_owned(), variables);
        if let Some(server) = current.get(&key).and_then(Weak::upgrade).filter(|server| server.exit.borrow().is_none())
        {
            return Ok(server.connect().await?);
        }
        let started = self.start(settings, agent, environment).await.map_err(|why| {
            if let Some(why) = why {
                tracing::warn!("{name} does not start as a server, so each session gets its own process: {why}");
            }
            NotServed::Unknown
        });
        let server = started?;
        current.retain(|_, server| server.strong_count() > 0);
        current.insert(key, Arc::downgrade(&server));
        Ok(server.connect().await?)
    }

    /// # Errors
    /// `None`: the agent is no server.
    async fn start(
        &self,
        settings: &Settings,
        agent: &Known,
        environment: &Environment,
    ) -> Result<Arc<Server>, Option<String>> {
        let id = ensemble_types::ids::unique();
        let launch = ensemble_agent::serve(agent.kind, &socket(&self.folder, id)).ok_or(None)?;
        let env = agent.env(environment, &launch.env);
        let what = process::Start {
            program: agent.find(&settings.environment, None)?,
            args: agent.args.iter().cloned().chain(launch.args).chain(agent.last_args.iter().cloned()).collect(),
            env,
            directory: Directory { root: self.folder.clone(), below: PathBuf::new() },
            prompt: String::new(),
            interactive: false,
            door: Some(door(&self.folder, id)),
        };
        let path = note(&self.folder, id);
        let noted = on_disk(move || replace(&path, &id)).await;
        noted.map_err(|error| error.to_string())?;
        let process = Process::serve(&settings.process, id, what).await.map_err(|error| error.to_string())?;
        let server = Server::run(settings, self.folder.clone(), process);
        let mut exit = server.exit.clone();
        let deadline = Instant::now() + LISTENS_WITHIN;
        loop {
            let ended = exit.borrow_and_update().clone();
            match ended {
                Some(Exit { stderr, .. }) => return Err(Some(format!("it has ended at once. {}", stderr.trim()))),
                None if UnixStream::connect(socket(&self.folder, id)).await.is_ok() => return Ok(server),
                None if Instant::now() > deadline => return Err(Some("it does not listen".to_owned())),
                None => drop(timeout(BETWEEN_TRIES, exit.changed()).await),
            }
        }
    }

    /// The server that has continued a turn.
    pub(crate) async fn adopted(&self, id: Uuid) -> Option<Arc<Server>> {
        self.adopted.lock().await.iter().find(|server| server.id == id && server.exit.borrow().is_none()).cloned()
    }

    /// Every session of the earlier process has connected again, or does not. A server without one ends. New sessions use another one,
    /// which is of today's version and configuration.
    pub(crate) async fn let_go(&self) {
        self.adopted.lock().await.clear();
    }

    /// A session leaves its turn to the server.
    pub(crate) async fn leave_to(&self, server: &Arc<Server>) {
        let mut left = self.left.lock().await;
        if !left.iter().any(|known| known.id == server.id) {
            left.push(server.clone());
        }
    }

    /// Lets the servers to which turns were left continue for this time.
    pub(crate) async fn part(&self, time: Duration) {
        self.let_go().await;
        for server in std::mem::take(&mut *self.left.lock().await) {
            let _ = server.orders.send(Order::Stay(time)).await;
            server.ended().await;
        }
    }
}

/// The servers that an earlier process has started and not seen the end of.
async fn noted(folder: PathBuf) -> Vec<Uuid> {
    let read = on_disk(move || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("server-") && name.ends_with(".json") {
                found.extend(serde_json::from_slice::<Uuid>(&std::fs::read(path)?).ok());
            }
        }
        Ok(found)
    });
    read.await.unwrap_or_default()
}

async fn forget(folder: PathBuf, id: Uuid) {
    let remove = move || {
        for path in [socket(&folder, id), door(&folder, id), note(&folder, id)] {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    };
    let _ = on_disk(remove).await;
}

impl Server {
    /// Watches the process until it ends, or until the last reference to the server is dropped.
    fn run(settings: &Settings, folder: PathBuf, mut process: Process) -> Arc<Self> {
        let (orders, mut ordered) = mpsc::channel(4);
        let (exited, exit) = watch::channel(None);
        let id = process.id();
        let grace = settings.process.term_grace;
        let server = Arc::new(Self { id, folder: folder.clone(), orders, exit });
        tokio::spawn(async move {
            let mut is_needed = true;
            let exit = loop {
                tokio::select! {
                    ended = process.ended() => {
                        forget(folder, id).await;
                        break exit_of(ended, process.said());
                    }
                    order = ordered.recv(), if is_needed => match order {
                        Some(Order::Kill) => process.kill_guard(),
                        Some(Order::Stay(time)) => match timeout(ANSWERS_WITHIN, process.stay(time)).await {
                            Ok(Ok(())) => break Exit::default(),
                            _ => process.stop(grace).await,
                        },
                        Some(Order::Stop) => process.stop(grace).await,
                        None => {
                            is_needed = false;
                            process.stop(grace).await;
                        }
                    }
                }
            };
            exited.send_replace(Some(exit));
        });
        server
    }

    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    pub(crate) async fn connect(self: &Arc<Self>) -> Result<Connection, String> {
        let failed = |error: &dyn std::fmt::Display| format!("its server cannot be reached: {error}");
        let stream = UnixStream::connect(socket(&self.folder, self.id)).await.map_err(|error| failed(&error))?;
        let config = WebSocketConfig::default().max_message_size(Some(LONGEST)).max_frame_size(Some(LONGEST));
        let opened = timeout(LISTENS_WITHIN, client_async_with_config("ws://localhost/", stream, Some(config)));
        let opened = opened.await.map_err(|error| failed(&error))?;
        let (stream, _) = opened.map_err(|error| failed(&error))?;
        Ok(Connection { stream, server: self.clone(), is_closed: false })
    }

    async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone().unwrap_or_default(),
            Err(_) => Exit::default(),
        }
    }
}

impl Connection {
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) async fn write(&mut self, lines: &[String]) {
        for line in lines {
            // A server that has ended is noticed when it is read from.
            let _ = self.stream.send(Message::text(line.clone())).await;
        }
    }

    /// The session is done with the server.
    pub(crate) async fn close(&mut self) {
        self.is_closed = true;
        let _ = self.stream.close(None).await;
    }

    /// Ends the server, and with it the turns of all its sessions.
    pub(crate) async fn stop(&self) {
        let _ = self.server.orders.send(Order::Stop).await;
    }

    pub(crate) fn kill(&self) {
        let _ = self.server.orders.try_send(Order::Kill);
    }

    /// The next line, or the end. Cancel safe. Without `reads` only the end is waited for.
    pub(crate) async fn next(&mut self, reads: bool) -> Happened {
        loop {
            if self.is_closed {
                return Happened::Ended(Exit { code: Some(0), stderr: String::new() });
            }
            tokio::select! {
                biased;
                message = self.stream.next(), if reads => match message {
                    Some(Ok(Message::Text(line))) => return Happened::Lines(vec![Line::Text(line.to_string())]),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => {
                        // What the server still does for this session could not be seen or stopped.
                        self.stop().await;
                        return Happened::Ended(self.server.ended().await);
                    }
                },
                exit = self.server.ended() => return Happened::Ended(exit),
            }
        }
    }
}
