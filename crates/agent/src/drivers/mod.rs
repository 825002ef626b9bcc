//! The drivers: one for each protocol.

pub(crate) mod acp;
pub(crate) mod claude;
pub mod codex;
mod rpc;

use serde::{Deserialize, Serialize};

use crate::command::{Checkpoint, Command, Exit, Refused, Start};
use crate::event::Output;
use crate::lines::Line;

/// Which agent, where that matters to how it is started and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Stream JSON with control requests (`claude -p --input-format stream-json`).
    Claude,
    /// JSON-RPC of `codex app-server`.
    Codex,
    /// The Agent Client Protocol (agentclientprotocol.com), version 1.
    Gemini,
    Opencode,
    /// Any other agent that speaks it. Its command comes from the configuration.
    Acp,
}

/// What an agent can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// A prompt can be put into the turn that runs.
    pub steers: bool,
    /// A conversation can be resumed after the process has ended.
    pub resumes: bool,
    /// One process can hold several sessions. A driver is for one of them. See [`crate::serve`].
    pub shares_process: bool,
    /// A refusal can carry a message for the agent.
    pub refuses_with_message: bool,
    /// It says what a turn costs.
    pub says_cost: bool,
    /// It lists the commands that outlive a turn, and an interrupt without a turn ends them.
    pub lists_commands: bool,
}

/// One session with one agent.
///
/// No call fails on anything that the agent sends: what is not understood becomes a note or is ignored.
pub trait Driver: Send {
    /// Known after the agent is ready, and best before.
    fn abilities(&self) -> Abilities;

    /// What is written first, before anything is read.
    fn begin(&mut self) -> Output;

    /// A line of the agent's standard output.
    fn line(&mut self, line: &Line) -> Output;

    /// An order of the host. Refused: nothing was written, and nothing has changed.
    fn command(&mut self, command: Command) -> Result<Output, Refused>;

    /// The process has ended. Nothing is open after it.
    fn exited(&mut self, exit: &Exit) -> Output;

    /// What another driver needs to continue the turn that runs, where the agent works on while no client is connected. `None`: no
    /// turn runs, or something is under way that only this driver knows.
    fn checkpoint(&self) -> Option<Checkpoint> {
        None
    }
}

/// The driver for a session with this agent.
pub fn driver(kind: Kind, start: Start) -> Box<dyn Driver> {
    match kind {
        Kind::Claude => Box::new(claude::Claude::new(start)),
        Kind::Codex => Box::new(codex::Codex::new(start)),
        Kind::Gemini | Kind::Opencode | Kind::Acp => Box::new(acp::Acp::new(kind, start)),
    }
}
