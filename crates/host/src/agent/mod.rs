//! The agents of a machine, for sessions and tasks alike: how each is started, and its process.

mod known;
mod minute;
mod piped;

use std::time::Duration;

use ensemble_agent::{Command, Driver, Event, Line, Output, Refused, Start, driver, launch};
use ensemble_process::Exit;
use tokio::time::timeout;
use uuid::Uuid;

use crate::settings::{Environment, Settings};

pub use known::{Known, inherited_env};
pub use minute::until_resumable;
pub use piped::{Happened, How};
pub(crate) use piped::{Piped, exit_of};

/// A guard takes an order within this time.
pub(crate) const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// An agent with the process that it drives. A session has the two apart, because what it decides is without I/O.
pub struct Agent {
    driver: Box<dyn Driver>,
    process: Piped,
}

impl Agent {
    /// Starts the agent under a guard. `id` marks all of its processes.
    ///
    /// # Errors
    /// It cannot be started. The text is for people.
    pub async fn start(
        settings: &Settings,
        known: &Known,
        (start, how): (Start, How),
        environment: &Environment,
        id: Uuid,
    ) -> Result<Self, String> {
        let launch = launch(known.kind, &start).map_err(|error| error.to_string())?;
        let process = Piped::start(settings, known, How { launch, ..how }, environment, id).await?;
        let mut agent = Self { driver: driver(known.kind, start), process };
        let first = agent.driver.begin();
        agent.carry_out(first).await;
        Ok(agent)
    }

    /// The next lines, or the end. Cancel safe. Without `reads` only the end is waited for, and then what was said last.
    pub async fn next(&mut self, reads: bool) -> Happened {
        self.process.next(reads).await
    }

    /// Reads a line, and answers where that is for the driver to do.
    pub async fn line(&mut self, line: &Line) -> Vec<Event> {
        let output = self.driver.line(line);
        self.carry_out(output).await
    }

    pub async fn command(&mut self, command: Command) -> Result<Vec<Event>, Refused> {
        let output = self.driver.command(command)?;
        Ok(self.carry_out(output).await)
    }

    /// What the end of the process means to the driver.
    pub fn exited(&mut self, exit: &ensemble_agent::Exit) -> Vec<Event> {
        self.driver.exited(exit).events
    }

    /// How the process has ended. The error says why it was not started.
    pub fn exit(&self) -> Result<Exit, String> {
        self.process.exit().cloned().unwrap_or(Ok(Exit::Unknown))
    }

    /// Ends the agent and all that it has started.
    pub async fn stop(&mut self, grace: Duration) {
        if timeout(WRITTEN_WITHIN, self.process.stop(grace)).await.is_err() {
            self.process.kill();
        }
    }

    async fn carry_out(&mut self, output: Output) -> Vec<Event> {
        let orders = async {
            self.process.write(&output.lines).await;
            if output.close {
                self.process.close_input().await;
            }
        };
        if timeout(WRITTEN_WITHIN, orders).await.is_err() {
            tracing::error!("The guard of an agent does not answer, so both are ended");
            self.process.kill();
        }
        output.events
    }
}
