//! How the agent of a session starts: as a separate process, or as a connection to a server of many sessions.

use std::time::Duration;

use ensemble_agent::launch;
use ensemble_process::orphans;
use ensemble_types::ids::unique;
use tokio::time::Instant;

use super::agents::Agent;
use super::deadlines::{Deadlines, READY_WITHIN};
use super::running::{Piped, Running};
use super::served::NotServed;
use super::session::Session;

impl Session {
    /// # Errors
    /// The log cannot be written. The inner error says why the agent was not started.
    pub(super) async fn start(&mut self, mut start: ensemble_agent::Start) -> std::io::Result<Result<(), String>> {
        start.private = Some(self.host.sessions.join(self.id.to_string()).display().to_string());
        let known = Agent::named(&self.host.config, &self.core.kept.agent);
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
            None => self.host.servers.connect(&self.host.config, &self.core.kept.agent, &agent, &environment).await,
        };
        let running = match served {
            Ok(connection) => Ok(Running::Served(Box::new(connection))),
            Err(NotServed::Failed(why)) => Err(why),
            Err(NotServed::Unknown) => {
                let id = unique();
                self.core.process(id);
                let changes = self.core.take_changes();
                self.write(&changes).await?;
                Piped::start(&self.host.config, &agent, (&start, launch), &environment, id)
                    .await
                    .map(|piped| Running::Piped(Box::new(piped)))
            }
        };
        match running {
            Ok(running) => self.agent = Some(running),
            Err(why) => return Ok(Err(why)),
        }
        self.deadlines = Deadlines { ready: Some(Instant::now() + READY_WITHIN), ..Deadlines::default() };
        tracing::info!(session.id = %self.id, agent = self.core.kept.agent, "An agent has been started");
        Ok(Ok(()))
    }
}
