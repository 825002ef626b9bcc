//! The host from its start to its end.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_client::Client;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::BoxKeyPair;
use ensemble_types::ids::SessionId;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::account::{Lists, ListsError};
use super::drain::{Drain, Phase};
use super::hints::Wakers;
use super::look::Looks;
use super::reopen::Reopened;
use super::room::Room;
use super::served::Servers;
use super::session::Session;
use super::settings::{Hosting, Settings};
use super::tasks::Sessions;
use super::{Folder, Host, Pause, confirm, hints, local, look, place, rest, socket, spool};

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
    asked.spawn(look::watch(host.clone()));
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
            Ok::<_, ListsError>((owner, lists))
        };
        match found.await {
            Ok(found) => break found,
            Err(error @ ListsError::Disk(_)) => return Err(error.to_string()),
            Err(error) => {
                pause.say(&format!("Sessions wait for the server: {error}"));
                pause.wait().await;
            }
        }
    };
    let looks = Looks::open(&settings.environment, &folder, &hosting.own, settings.timing.look_within);
    Ok(Host {
        looks: looks.map_err(|error| format!("{}: {error}", folder.display()))?,
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
