//! How a live session speaks to a coding agent: one driver for each protocol, without I/O.
//!
//! A driver takes lines of the agent's output and commands of the host, and gives lines to write and events. Processes, pipes
//! and time belong to the host. docs/TRANSCRIPT.md says which words of an agent become which event.

mod command;
mod core;
pub mod drivers;
mod event;
mod json;
pub mod known;
mod launch;
mod lines;
mod mcp;
mod texts;
mod tools;

pub use command::{ApiKey, Attended, Checkpoint, Command, Exit, Prompt, Refused, Reply, Start, Unattended};
pub use drivers::codex::threads;
pub use drivers::{Abilities, Driver, Kind, driver};
pub use event::{Event, Output, PartKind, Permission, Question, StateChange};
pub use launch::{Launch, forks, launch, look, serve, takes_tools};
pub use lines::{LONGEST, Line, Lines, whole_characters};
pub use mcp::McpServer;
