//! An agent of the Agent Client Protocol (agentclientprotocol.com, protocol version 1): an editor drives a live session that runs elsewhere.
//!
//! `core` decides what to say, from what the editor and the session say; it has no I/O and no clock. `process` reads and writes, and
//! `session` follows one session. The program around it is a [`LocalHost`].

mod computer;
mod core;
mod process;
mod rpc;
mod session;

pub use computer::LocalHost;
pub use process::{Which, run};
pub use session::ELSEWHERE;
