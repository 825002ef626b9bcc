//! How a session begins: on disk and at the server.

use std::sync::Arc;

use ensemble_agent::McpServer;
use ensemble_client::idempotency_key;
use ensemble_process::disk::on_disk;
use ensemble_protocol::seal::{self, Binding, KeyRing};
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use ensemble_types::sessions::CreateSession;
use ensemble_types::text::Blob;

use super::conversations;
use super::demo;
use super::drain::Phase;
use super::kept::{CostLimit, Kept};
use super::keys::Keys;
use super::local::Start;
use super::pause::repeated;
use super::spool::Spool;
use super::titles::Card;
use super::{Host, NotBegun};

impl Host {
    /// Begins a session: it exists at the server and on disk when this returns.
    pub(crate) async fn start(self: &Arc<Self>, start: Start) -> Result<SessionId, NotBegun> {
        self.begin(SessionId::generate(), start).await
    }

    /// The same with this id. A session that was begun with it stays as it is.
    pub(crate) async fn begin(self: &Arc<Self>, id: SessionId, start: Start) -> Result<SessionId, NotBegun> {
        demo::refuse(&start.agent)?;
        self.begin_any(id, start).await
    }

    /// The same with any agent.
    pub(crate) async fn begin_any(self: &Arc<Self>, id: SessionId, start: Start) -> Result<SessionId, NotBegun> {
        let _one_at_a_time = self.starting.lock().await;
        if self.sessions.join(id.to_string()).exists() {
            return self.begun_before(id).await;
        }
        self.room.admits(id).map_err(NotBegun::Busy)?;
        Ok(self.begin_new(id, start).await?)
    }

    /// A session that is on this disk.
    pub(crate) async fn begun_before(&self, id: SessionId) -> Result<SessionId, NotBegun> {
        let known = repeated(self.settings.timing.backoff, || self.client.session(id)).await;
        Ok(known.map_err(|error| format!("The server: {error}."))?.id)
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
        if start.fork && !ensemble_agent::forks(agent.kind) {
            return Err(format!("{} cannot copy a conversation. Leave --copy out.", start.agent));
        }
        if let Some(id) = start.resume.as_deref().filter(|_| !start.fork) {
            conversations::refuse(&self.sessions, &start.agent, id).await?;
        }
        let directory = start.directory.canonicalize();
        let directory = directory.map_err(|error| format!("{}: {error}.", start.directory.display()))?;
        if !directory.is_dir() {
            return Err(format!("{} is not a directory.", directory.display()));
        }
        agent.find(&self.settings.environment, Some(&directory)).map_err(|why| format!("Cannot start it: {why}."))?;
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
        let (mode, model, resume, fork) = (start.mode, start.model, start.resume, start.fork);
        let limit = start.max_cost_usd;
        if limit.is_some_and(|usd| usd <= 0.0 || !usd.is_finite()) {
            return Err("The limit of the cost must be more than 0 dollars.".to_owned());
        }
        let limit = limit.map(CostLimit::new);
        let mcp_servers = start.mcp_servers;
        let kept =
            Kept { mode, model, resume, fork, limit, mcp_servers, ..Kept::new(id, start.agent, directory, host_key) };
        // On disk first: a session that the server has and the disk has not would have no host.
        let (folder, written) = (self.sessions.clone(), kept.clone());
        let spool = on_disk(move || Spool::create(&folder, &written)).await;
        let spool = spool.map_err(|error| format!("The session cannot be written to disk: {error}."))?;
        let (key, own) = (idempotency_key(), self.sessions.join(id.to_string()));
        // The agent changes nothing before both are done.
        let (made, ()) = tokio::join!(
            repeated(backoff, || self.client.create_session(&request, &key)),
            self.looks.begin(&own, &kept.directory)
        );
        if let Err(error) = made {
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
