//! The agent of a session that runs: its own process, or a connection to an agent that is a server.

use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Pid;

use super::served::{Connection, Server};
use crate::agent::{Happened, Piped};

/// An agent that runs.
pub(crate) enum Running {
    Piped(Box<Piped>),
    Served(Box<Connection>),
}

impl Running {
    pub(crate) async fn write(&mut self, lines: &[String]) {
        match self {
            Self::Piped(piped) => piped.write(lines).await,
            Self::Served(connection) => connection.write(lines).await,
        }
    }

    pub(crate) async fn close_input(&mut self) {
        match self {
            Self::Piped(piped) => piped.close_input().await,
            Self::Served(connection) => connection.close().await,
        }
    }

    /// Ends the agent and all that it has started. A server ends for all its sessions.
    pub(crate) async fn stop(&mut self, grace: Duration) {
        match self {
            Self::Piped(piped) => piped.stop(grace).await,
            Self::Served(connection) => connection.stop().await,
        }
    }

    /// Ends the guard itself, and with it the agent.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Piped(piped) => piped.kill(),
            Self::Served(connection) => connection.kill(),
        }
    }

    /// The next lines, or the end. Cancel safe. Without `reads` only the end is waited for.
    pub(crate) async fn next(&mut self, reads: bool) -> Happened {
        match self {
            Self::Piped(piped) => piped.next(reads).await,
            Self::Served(connection) => connection.next(reads).await,
        }
    }

    /// The guard of the session's own process.
    pub(super) fn guard(&self) -> Option<Pid> {
        match self {
            Self::Piped(piped) => piped.guard(),
            Self::Served(_) => None,
        }
    }

    /// The server, if the agent is one.
    pub(crate) fn server(&self) -> Option<&Arc<Server>> {
        match self {
            Self::Piped(_) => None,
            Self::Served(connection) => Some(connection.server()),
        }
    }
}
