//! Resumes the sessions of earlier processes, also when the log of one is lost, damaged or older than what the server has.

use std::sync::Arc;
use std::time::Duration;

use ensemble_agent::Kind;
use ensemble_client::Error;
use ensemble_process::disk::on_disk;
use ensemble_types::ids::SessionId;
use ensemble_types::problem::Code;
use rand::RngCore;
use tokio::task::JoinSet;

use super::core::{Core, Setting};
use super::kept::{Change, Kept};
use super::keys::Keys;
use super::session::Session;
use super::shown::{self, Recovered, Shown};
use super::spool::{Card, Opened, Spool};
use super::{Host, Pause, place, rest, status, titles};
use crate::drain::Phase;

/// The result of opening a session of an earlier process.
pub(super) enum Reopened {
    Session(Box<Session>),
    /// It is to be tried again.
    Later(SessionId),
    /// It is not hosted here any more.
    Not,
}

/// Why a session is not hosted.
enum Why {
    /// That may be over soon.
    Now(String),
    Damaged(String),
    /// It does not exist any more.
    Gone,
}

/// A process on another copy of this machine learns at once that it has lost its sessions. What it says until then is read here.
const OTHER_ENDS_WITHIN: Duration = Duration::from_secs(5);

const OLD: &str = "it is older than what this machine has sent";

impl Host {
    /// The sessions of earlier processes, without those that rest. Their agents do not run.
    pub(super) async fn recover(self: &Arc<Self>) -> JoinSet<Reopened> {
        let folder = self.sessions.clone();
        let all = move || {
            let mut ids = Spool::all(&folder)?;
            ids.retain(|id| rest::marked(&folder, *id).is_none());
            Ok(ids)
        };
        let ids = on_disk(all).await.unwrap_or_else(|error| {
            tracing::error!("The sessions of this machine cannot be read: {error}");
            Vec::new()
        });
        ids.into_iter().map(|id| self.clone().reopen(id)).collect()
    }

    /// Opens a session as soon as the server has confirmed that no other process hosts it.
    pub(super) async fn reopen(self: Arc<Self>, id: SessionId) -> Reopened {
        let _is_used = self.unended.clone();
        let opened = tokio::select! {
            opened = self.try_to_reopen(id) => opened,
            () = self.drain.reached(Phase::Draining) => return Reopened::Not,
        };
        match opened {
            Ok(session) => Reopened::Session(Box::new(session)),
            Err(Why::Now(why)) => {
                tracing::error!(session.id = %id, "A session cannot be hosted now: {why}");
                Reopened::Later(id)
            }
            Err(Why::Damaged(why)) => {
                tracing::error!(session.id = %id, "A session cannot be hosted any more: {why}");
                Reopened::Not
            }
            Err(Why::Gone) => {
                let folder = self.sessions.clone();
                if let Err(error) = on_disk(move || Spool::delete(&folder, id)).await {
                    tracing::error!(session.id = %id, "Cannot remove a deleted session: {error}");
                }
                Reopened::Not
            }
        }
    }

    async fn try_to_reopen(self: &Arc<Self>, id: SessionId) -> Result<Session, Why> {
        self.claim(id).await?;
        if !self.name.has_ended {
            tokio::time::sleep(OTHER_ENDS_WITHIN).await;
        }
        let folder = self.sessions.clone();
        let opened = on_disk(move || Spool::open(&folder, id)).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => Why::Damaged(error.to_string()),
            _ => Why::Now(error.to_string()),
        })?;
        let directory = match &opened {
            Opened::Whole(_, kept) => &kept.directory,
            Opened::Lost(card, _) => &card.directory,
        };
        self.looks.begin_again(&self.sessions.join(id.to_string()), directory).await;
        let (card, why) = match opened {
            Opened::Whole(spool, kept) => {
                self.end_agent(kept.process).await;
                let left = match &kept.left {
                    Some(left) => {
                        self.servers.adopted(left.server).await.map(|server| (server, left.checkpoint.clone()))
                    }
                    None => None,
                };
                let keys = self.keys(id, &kept.host_key, titles::Card::new(&kept.agent, &kept.directory)).await?;
                let epoch = keys.ring().epoch();
                let shown = self.shown(&keys, id, Some(kept.n)).await?;
                if shown.n() <= kept.n {
                    let mut core = self.core(*kept, epoch).await;
                    core.opened_at(shown.newest());
                    let (epoch, sealed) = keys.changes().borrow().clone();
                    core.set_key(epoch, sealed);
                    let follows = match left {
                        Some((server, checkpoint)) => {
                            core.follow(checkpoint);
                            Some(server)
                        }
                        None => {
                            core.recover();
                            None
                        }
                    };
                    let mut session = self.session(core, spool, keys).await?;
                    session.at_server = shown.newest_own(session.core.kept.confirmed());
                    session.follows = follows;
                    return Ok(session);
                }
                (spool.card().clone(), OLD.to_owned())
            }
            Opened::Lost(card, why) => {
                self.end_agent(card.process).await;
                (card, why)
            }
        };
        self.recover_lost(id, card, &why).await
    }

    /// Says that this process hosts the session, when the server can be reached.
    async fn claim(&self, id: SessionId) -> Result<(), Why> {
        let mut pause = Pause::new(self);
        loop {
            match status::claim(self, id).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is(Code::LeaseLost) => {
                    return Err(Why::Now("another process hosts it. Was this machine copied?".to_owned()));
                }
                Err(error) => wait(&mut pause, id, error).await?,
            }
        }
    }

    async fn shown(&self, keys: &Keys, id: SessionId, known: Option<u64>) -> Result<Shown, Why> {
        let mut pause = Pause::new(self);
        loop {
            match shown::read(self, keys, id, known).await {
                Ok(shown) => return shown.map_err(Why::Now),
                Err(error) => wait(&mut pause, id, error).await?,
            }
        }
    }

    /// A guard that was killed with its host may have left something behind.
    async fn end_agent(&self, process: Option<uuid::Uuid>) {
        if let Some(before) = process {
            ensemble_process::orphans::end(before, Duration::ZERO).await;
        }
    }

    /// Begins a new log for a session, with what never changes and what the server shows.
    async fn recover_lost(self: &Arc<Self>, id: SessionId, card: Card, why: &str) -> Result<Session, Why> {
        let keys = self.keys(id, &card.host_key, titles::Card::new(&card.agent, &card.directory)).await?;
        let shown = self.shown(&keys, id, None).await?;
        let (epoch, host_key) = keys.changes().borrow().clone();
        let at_server = shown.newest_own(shown.n());
        let Recovered { kept, unanswered } = shown.recovered(Card { host_key, ..card });
        let kept = Kept { lost: Some(self.now()), mark: Some(mark()), ..kept };
        let mut core = self.core(kept, epoch).await;
        core.continue_after_loss(why, unanswered);
        // The new log begins with all of it, and keeps what is said in it.
        let says: Vec<Change> =
            core.take_changes().into_iter().filter(|change| matches!(change, Change::Say(_))).collect();
        let (folder, kept) = (self.sessions.clone(), core.kept.clone());
        let replaced = on_disk(move || Spool::replace_lost(&folder, &kept, &says)).await;
        let (spool, aside) = replaced.map_err(|error| Why::Now(format!("its log cannot be replaced: {error}")))?;
        tracing::error!(
            session.id = %id, aside = %aside.display(), n = core.kept.n,
            "The log of a session could not be used and was set aside: {why}. The session continues with what the server has"
        );
        let mut session = self.session(core, spool, keys).await?;
        session.at_server = at_server;
        Ok(session)
    }

    async fn keys(&self, id: SessionId, host_key: &str, card: titles::Card) -> Result<Keys, Why> {
        let own = (self.key.clone(), self.boxed.clone());
        let server = (self.client.clone(), self.settings.machine.clone());
        let said = titles::Said::open(card, &self.sessions.join(id.to_string()));
        Keys::open(server, own, self.lists.clone(), (id, said, self.settings.timing.rekey_grace), host_key)
            .await
            .map_err(|error| Why::Damaged(format!("its key does not open: {error}")))
    }

    async fn core(&self, kept: Kept, key_epoch: u32) -> Core {
        // An agent that was taken out of the configuration: its sessions stay, and no start succeeds.
        let kind = self.settings.agent(&kept.agent).map_or(Kind::Acp, |known| known.kind);
        let setting = Setting {
            kind,
            driver_of: ensemble_agent::driver,
            owner: self.owner,
            list: self.lists.known().await,
            key_epoch,
            branch: place::branch(&kept.directory).await,
            as_root: nix::unistd::geteuid().is_root(),
        };
        Core::new(kept, setting, self.now())
    }

    /// A session that has just begun.
    pub(super) async fn begun(self: &Arc<Self>, spool: Spool, kept: Kept) -> Result<Session, String> {
        let begin = async {
            let card = titles::Card::new(&kept.agent, &kept.directory);
            let keys = self.keys(kept.session, &kept.host_key, card).await?;
            let mut core = self.core(kept, keys.ring().epoch()).await;
            core.begin();
            self.session(core, spool, keys).await
        };
        begin.await.map_err(|why| match why {
            Why::Now(why) | Why::Damaged(why) => why,
            Why::Gone => "It does not exist any more".to_owned(),
        })
    }

    /// What has changed is on disk before any of it is sent.
    async fn session(self: &Arc<Self>, mut core: Core, mut spool: Spool, keys: Keys) -> Result<Session, Why> {
        keys.note_old(core.kept.old_key, &[]);
        let changes = core.take_changes();
        if !changes.is_empty() {
            let written = on_disk(move || spool.write(&changes).map(|()| spool)).await;
            if let Err(error) = &written {
                status::unwritten(self, &keys, core.kept.session, (&error.to_string(), false)).await;
            }
            spool = written.map_err(|error| Why::Now(format!("its log cannot be written: {error}")))?;
        }
        Ok(Session::new(self.clone(), core, spool, keys))
    }
}

/// Waits after an error that may be over later.
async fn wait(pause: &mut Pause, id: SessionId, error: Error) -> Result<(), Why> {
    if error.is_not_found() {
        return Err(Why::Gone);
    }
    pause.note(id, "It waits to be hosted", &error);
    pause.wait().await;
    Ok(())
}

/// Makes the names of messages different from those that the lost log may have used.
fn mark() -> String {
    let mut random = [0; 3];
    rand::rngs::OsRng.fill_bytes(&mut random);
    ensemble_client::devices::encode(&random)
}
