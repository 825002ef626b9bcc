//! Live sessions on a machine: a real agent works there, and people see and steer it through the server, which cannot read any of it.
//!
//! A step of a session goes one way: an agent's line or a person's command comes to the session's task, `core` decides, the changes are
//! written to the `spool`, and then they are sent and the agent gets its orders.
//!
//! [`run`] hosts the sessions of a machine. [`Agent`] is one driver with its process, which tasks of runs use without a session.

pub mod drain;
pub mod local;
pub mod sign_in;
pub mod wake;

mod account;
mod agent;
mod background;
mod backoff;
mod behind;
mod confirm;
mod core;
mod deadlines;
mod deliver;
mod hints;
mod kept;
mod keys;
mod leftovers;
mod mcp;
mod pause;
mod place;
mod receive;
mod reopen;
mod rest;
mod room;
mod running;
mod served;
mod session;
mod settings;
mod shown;
mod socket;
mod spool;
mod starting;
mod status;
mod tasks;
mod titles;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ensemble_agent::McpServer;
use ensemble_client::{Client, idempotency_key};
use ensemble_process::disk::on_disk;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxKeyPair, KeyRing};
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::sessions::CreateSession;
use ensemble_types::text::Blob;
use ensemble_types::time::Timestamp;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::account::Lists;
use crate::drain::Phase;
use crate::hints::Wakers;
use crate::kept::{CostLimit, Kept};
use crate::keys::Keys;
use crate::local::Start;
use crate::pause::repeated;
use crate::reopen::Reopened;
use crate::room::Room;
use crate::served::Servers;
use crate::session::Session;
use crate::spool::Spool;
use crate::tasks::Sessions;
use crate::titles::Card;

pub use self::core::TaskState;
pub use agent::{Agent, Happened, How, Known, inherited_env, until_resumable};
pub use backoff::Backoff;
pub use drain::Drain;
pub use kept::TaskEnd;
pub use pause::Pause;
pub use place::Folder;
pub use room::NotBegun;
pub use settings::{Agents, Environment, Hosting, Settings, Timing, search_path};
pub use tasks::TaskTurn;

/// What all sessions of this machine share.
pub struct Host {
    settings: Arc<Settings>,
    /// The program does nothing else.
    sessions_only: bool,
    client: Client,
    /// The machine's key.
    key: AccountKey,
    boxed: Arc<BoxKeyPair>,
    owner: UserId,
    lists: Arc<Lists>,
    name: place::Name,
    sessions: PathBuf,
    drain: Drain,
    wakers: Wakers,
    hosted: Sessions,
    room: Room,
    servers: Servers,
    /// The variables of the terminals in which sessions of this process were begun. They hold keys, so they are never on disk.
    environments: std::sync::Mutex<HashMap<SessionId, Environment>>,
    /// Each session that has not ended holds one.
    unended: Arc<()>,
    /// Is notified when a session has ended.
    used: Notify,
    /// New sessions, for the task that runs them.
    begun: mpsc::Sender<Session>,
    /// Sessions that rest and are to be hosted again.
    rested: mpsc::Sender<SessionId>,
    /// One session begins at a time.
    starting: Mutex<()>,
}

/// Hosts sessions in the folder until the drain has ended them. `ready` receives the host once it is.
///
/// # Errors
/// Why it hosts none, for people.
pub async fn run(
    settings: Arc<Settings>,
    hosting: Hosting,
    own: Folder,
    (client, key): (Client, AccountKey),
    (drain, ready): (Drain, impl FnOnce(Arc<Host>)),
) -> Result<(), String> {
    let folder = own.path().to_owned();
    let ((begun, mut begins), (rested, mut rests)) = (mpsc::channel(16), mpsc::channel(16));
    // Before the server is asked: it may be away, and their guards do not wait for ever.
    let sockets = local::place_sockets(&folder, &settings.environment).unwrap_or_else(|error| {
        tracing::error!("There is no place for the sockets of this program: {error}");
        folder.clone()
    });
    let servers = Servers::open(&settings, sockets.clone()).await;
    let opened = open(&settings, &hosting, (folder.clone(), client, key, servers), (&drain, begun, rested));
    let host = tokio::select! {
        host = opened => Arc::new(host?),
        () = drain.reached(Phase::Draining) => return Ok(()),
    };
    place::write_pid(&folder).map_err(|error| error.to_string())?;
    let mut sessions = JoinSet::new();
    let mut later: JoinSet<SessionId> = JoinSet::new();
    let mut opening = host.recover().await;
    let deadline = Instant::now() + OPENED_WITHIN;
    while let Ok(Some(opened)) = timeout_at(deadline, opening.join_next()).await {
        match opened {
            Ok(Reopened::Session(session)) => drop(sessions.spawn(session.run())),
            Ok(Reopened::Later(id)) => drop(later.spawn(after_a_while(id))),
            Ok(Reopened::Not) | Err(_) => {}
        }
    }
    let listener = match socket::listen(&sockets) {
        Ok(listener) => Some(listener),
        Err(error) if hosting.sessions_only => return Err(format!("{}: {error}", sockets.display())),
        // Tasks come from the server.
        Err(error) => {
            tracing::error!("Programs of this computer cannot begin sessions: {}: {error}", sockets.display());
            None
        }
    };
    let mut asked = JoinSet::new();
    asked.spawn(hints::run(host.clone()));
    asked.spawn(confirm::run(host.clone()));
    asked.spawn(let_go(host.clone()));
    asked.spawn(spool::watch(host.sessions.clone()));
    tracing::info!(sessions = sessions.len(), "This machine hosts sessions");
    hosting.ready.notify_one();
    ready(host.clone());
    let linger = settings.timing.linger;
    while drain.phase() == Phase::Serving || !sessions.is_empty() {
        let is_unused = hosting.sessions_only && host.is_unused() && drain.phase() == Phase::Serving;
        tokio::select! {
            Ok((stream, _)) = socket::accept(listener.as_ref()) => drop(asked.spawn(socket::serve(host.clone(), stream))),
            Some(session) = begins.recv() => drop(sessions.spawn(session.run())),
            Some(ended) = sessions.join_next(), if !sessions.is_empty() => {
                // Its log could not be written, or another host had it: that may be over soon.
                if let Ok(Some(id)) = ended {
                    later.spawn(after_a_while(id));
                }
            }
            Some(Ok(id)) = later.join_next(), if !later.is_empty() && drain.phase() == Phase::Serving => {
                rest::unmark(&host.sessions, id);
                opening.spawn(host.clone().reopen(id));
            }
            Some(id) = rests.recv(), if drain.phase() == Phase::Serving => {
                // It may have been asked for twice.
                if rest::unmark(&host.sessions, id) {
                    opening.spawn(host.clone().reopen(id));
                }
            }
            Some(opened) = opening.join_next(), if !opening.is_empty() => match opened {
                Ok(Reopened::Session(session)) => drop(sessions.spawn(session.run())),
                Ok(Reopened::Later(id)) => drop(later.spawn(after_a_while(id))),
                Ok(Reopened::Not) | Err(_) => {}
            },
            () = host.used.notified() => {}
            _ = asked.join_next(), if !asked.is_empty() => {}
            () = drain.reached(Phase::Draining), if sessions.is_empty() => {}
            () = tokio::time::sleep(linger), if is_unused => drain.begin(),
        }
    }
    let _ = fs::remove_file(local::socket(&sockets));
    host.servers.part(settings.timing.left_alone).await;
    if sockets != folder {
        // The servers that continue alone have theirs in it.
        let _ = fs::remove_dir(sockets);
    }
    Ok(())
}

/// The sessions of an earlier process connect to their agents' servers within the time for which these continue alone.
async fn let_go(host: Arc<Host>) {
    tokio::time::sleep(host.settings.timing.left_alone).await;
    host.servers.let_go().await;
}

/// After a session was lost.
const OPENED_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// People and tasks wait at most this long for the sessions of earlier processes. Later ones are opened in the background.
const OPENED_WITHIN: Duration = Duration::from_secs(10);

async fn after_a_while(id: SessionId) -> SessionId {
    tokio::time::sleep(OPENED_AGAIN_AFTER).await;
    id
}

/// Signs in and reads the owner's device list. Repeats it while the server cannot be reached.
async fn open(
    settings: &Arc<Settings>,
    hosting: &Hosting,
    (folder, client, key, servers): (PathBuf, Client, AccountKey, Servers),
    (drain, begun, rested): (&Drain, mpsc::Sender<Session>, mpsc::Sender<SessionId>),
) -> Result<Host, String> {
    let boxed = BoxKeyPair::of_device(&key).map_err(|error| error.to_string())?;
    let name = place::Name::new(&folder).map_err(|error| error.to_string())?;
    let mut pause = Pause::of(settings.timing.backoff);
    let (owner, lists) = loop {
        let found = async {
            let owner = client.sign_in().await?.user_id;
            let lists = Lists::open(client.clone(), owner, &hosting.account, &folder).await?;
            Ok::<_, account::ListsError>((owner, lists))
        };
        match found.await {
            Ok(found) => break found,
            Err(error @ account::ListsError::Disk(_)) => return Err(error.to_string()),
            Err(error) => {
                pause.say(&format!("Sessions wait for the server: {error}"));
                pause.wait().await;
            }
        }
    };
    Ok(Host {
        settings: settings.clone(),
        sessions_only: hosting.sessions_only,
        client,
        key,
        boxed: Arc::new(boxed),
        owner,
        lists: Arc::new(lists),
        name,
        sessions: folder.join("sessions"),
        drain: drain.clone(),
        wakers: Wakers::default(),
        hosted: Sessions::default(),
        unended: Arc::default(),
        used: Notify::new(),
        servers,
        environments: std::sync::Mutex::default(),
        room: Room::new(settings.max_agents.unwrap_or_else(Room::usual)),
        begun,
        rested,
        starting: Mutex::default(),
    })
}

#[expect(clippy::disallowed_methods, reason = "messages have the time of this machine's clock")]
pub fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_micros(0).plus(since)
}

impl Host {
    pub(crate) fn is_for_sessions_only(&self) -> bool {
        self.sessions_only
    }

    pub fn now(&self) -> Timestamp {
        clock()
    }

    pub fn owner(&self) -> UserId {
        self.owner
    }

    /// Opens what is sealed for this machine.
    pub fn box_key(&self) -> &BoxKeyPair {
        &self.boxed
    }

    /// How many seconds this machine's clock is ahead of the server's.
    pub fn clock_ahead(&self) -> i64 {
        self.client.clock().ahead()
    }

    /// Whether every session has ended.
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.unended) == 1
    }

    /// Begins a session: it exists at the server and on disk when this returns.
    pub(crate) async fn start(self: &Arc<Self>, start: Start) -> Result<SessionId, NotBegun> {
        self.begin(SessionId::generate(), start).await
    }

    /// The same with this id. A session that was begun with it stays as it is.
    async fn begin(self: &Arc<Self>, id: SessionId, start: Start) -> Result<SessionId, NotBegun> {
        let _one_at_a_time = self.starting.lock().await;
        if self.sessions.join(id.to_string()).exists() {
            let known = repeated(self.settings.timing.backoff, || self.client.session(id)).await;
            return Ok(known.map_err(|error| format!("The server: {error}."))?.id);
        }
        self.room.admits(id).map_err(NotBegun::Busy)?;
        Ok(self.begin_new(id, start).await?)
    }

    async fn begin_new(self: &Arc<Self>, id: SessionId, start: Start) -> Result<SessionId, String> {
        if self.drain.phase() > Phase::Serving {
            return Err("The program that hosts sessions here is about to end. Try again.".to_owned());
        }
        if matches!(start.mode, Mode::Other(_)) {
            return Err(format!("There is no mode {}. There are ask, edit, plan and bypass.", start.mode.as_str()));
        }
        McpServer::check(&start.mcp_servers)?;
        let agent = self.settings.agent(&start.agent).map_err(|why| format!("Cannot start it: {why}."))?;
        ensemble_process::find(&agent.program, self.settings.search_path())
            .map_err(|why| format!("Cannot start it: {why}."))?;
        let directory = start.directory.canonicalize();
        let directory = directory.map_err(|error| format!("{}: {error}.", start.directory.display()))?;
        if !directory.is_dir() {
            return Err(format!("{} is not a directory.", directory.display()));
        }
        let ring = KeyRing::generate();
        let machine = &self.settings.machine;
        let sealed = |error: seal::SealError| format!("The session's key cannot be sealed: {error}.");
        let backoff = self.settings.timing.backoff;
        let key = repeated(backoff, || self.lists.content_key()).await;
        let (to, epoch) = key.map_err(|error| format!("The server: {error}."))?;
        let binding = Binding::Hosted { session: id, owner: self.owner, machine };
        let for_owner = seal::seal_ring(&ring, &to, binding, &self.key).map_err(sealed)?;
        let card = Card::new(&start.agent, &directory).titled(start.title);
        let metadata = card.seal(&ring, (id, 1), (self.owner, &self.key)).map_err(|error| match error {
            seal::SealError::TooLong => "The title is too long. Shorten it.".to_owned(),
            error => sealed(error),
        })?;
        let request = CreateSession {
            id: Some(id),
            machine_id: Some(machine.clone()),
            metadata: Blob::new(metadata).map_err(|error| format!("The title {error}."))?,
            encryption_key: Blob::new(for_owner).map_err(|error| format!("The key {error}."))?,
            content_epoch: Some(epoch),
            tag: None,
        };
        let host_key = Keys::seal_own(&ring, (&self.key, &self.boxed), (id, machine), epoch.get()).map_err(sealed)?;
        let (mode, model, resume, limit) = (start.mode, start.model, start.resume, start.max_cost_usd);
        if limit.is_some_and(|usd| usd <= 0.0 || !usd.is_finite()) {
            return Err("The limit of the cost must be more than 0 dollars.".to_owned());
        }
        let limit = limit.map(CostLimit::new);
        let mcp_servers = start.mcp_servers;
        let kept = Kept { mode, model, resume, limit, mcp_servers, ..Kept::new(id, start.agent, directory, host_key) };
        // On disk first: a session that the server has and the disk has not would have no host.
        let (folder, written) = (self.sessions.clone(), kept.clone());
        let spool = on_disk(move || Spool::create(&folder, &written)).await;
        let spool = spool.map_err(|error| format!("The session cannot be written to disk: {error}."))?;
        let key = idempotency_key();
        if let Err(error) = repeated(backoff, || self.client.create_session(&request, &key)).await {
            if error.code().is_some_and(|code| code.status() < 500) && !error.is_passing() {
                let _ = on_disk(move || spool.remove()).await;
            } else {
                // The server may have it.
                self.host_when_made(id).await;
            }
            return Err(format!("The server did not make the session: {error}."));
        }
        if let Some(environment) = start.environment {
            self.environments().insert(id, environment);
        }
        let session = self.begun(spool, kept).await?;
        self.begun.send(session).await.map_err(|_| "The host is about to end. Try again.".to_owned())?;
        Ok(id)
    }
}
