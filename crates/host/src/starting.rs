//! How the agent of a session starts: as a separate process, or as a connection to a server of many sessions.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_agent::launch;
use ensemble_process::disk::on_disk;
use ensemble_process::{Directory, orphans};
use ensemble_types::ids::{SessionId, unique};
use tokio::time::Instant;

use super::Host;
use super::deadlines::Deadlines;
use super::running::Running;
use super::served::NotServed;
use super::session::Session;
use crate::agent::{How, Known, Piped};
use crate::settings::Environment;

impl Session {
    /// # Errors
    /// The log cannot be written. The inner error says why the agent was not started.
    pub(super) async fn start(&mut self, mut start: ensemble_agent::Start) -> std::io::Result<Result<(), String>> {
        start.private = Some(self.host.sessions.join(self.id.to_string()).display().to_string());
        let settings = &self.host.settings;
        let known = settings.agent(&self.core.kept.agent).and_then(|agent| {
            let program = agent.find(&settings.environment, Some(start.directory.as_ref()))?;
            Ok(Known { program, ..agent })
        });
        let how = known.and_then(|agent| match launch(agent.kind, &start) {
            Ok(launch) => Ok((agent, launch)),
            Err(refused) => Err(refused.to_string()),
        });
        let (agent, launch) = match how {
            Ok(how) => how,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(before) = self.core.kept.process {
            // A guard that was killed may have left something behind.
            orphans::end(before, Duration::ZERO).await;
        }
        self.permit = match self.host.room.take(self.id).await {
            Ok(permit) => Some(permit),
            Err(why) => return Ok(Err(why)),
        };
        let environment = self.host.environment_of(self.id);
        let served = match self.follows.take() {
            Some(server) => server.connect().await.map_err(NotServed::Failed),
            None => self.host.servers.connect(&self.host.settings, &self.core.kept.agent, &agent, &environment).await,
        };
        let running = match served {
            Ok(connection) => Ok(Running::Served(Box::new(connection))),
            Err(NotServed::Failed(why)) => Err(why),
            Err(NotServed::Unknown) => {
                let id = unique();
                self.core.process(id);
                let changes = self.core.take_changes();
                self.write(&changes).await?;
                match directory(&start.directory).await {
                    Ok(directory) => {
                        let how = How { launch, directory, env: BTreeMap::new() };
                        let started = Piped::start(&self.host.settings, &agent, how, &environment, id).await;
                        started.map(|piped| Running::Piped(Box::new(piped)))
                    }
                    Err(why) => Err(why),
                }
            }
        };
        match running {
            Ok(running) => self.agent = Some(running),
            Err(why) => return Ok(Err(why)),
        }
        let ready = Instant::now() + self.host.settings.timing.ready_within;
        self.deadlines = Deadlines { ready: Some(ready), ..Deadlines::default() };
        tracing::info!(session.id = %self.id, agent = self.core.kept.agent, "An agent has been started");
        Ok(Ok(()))
    }
}

/// The directory itself: a link on the way to it may lead elsewhere later.
async fn directory(path: &str) -> Result<Directory, String> {
    let (path, named) = (PathBuf::from(path), path.to_owned());
    let root = on_disk(move || path.canonicalize()).await.map_err(|error| format!("{named}: {error}"))?;
    Ok(Directory { root, below: PathBuf::new() })
}

impl Host {
    /// What the agent of a session may inherit from.
    pub(super) fn environment_of(&self, session: SessionId) -> Environment {
        self.environments().get(&session).unwrap_or(&self.settings.environment).clone()
    }

    pub(super) fn forget_environment(&self, session: SessionId) {
        self.environments().remove(&session);
    }

    pub(super) fn environments(&self) -> MutexGuard<'_, HashMap<SessionId, Environment>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
