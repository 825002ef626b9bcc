//! The runner: a daemon on a user's machine that takes tasks from the orchestrator and runs coding agents for them.
//!
//! All connections are outgoing. The runner signs in with a machine token, sends the machine's heartbeat, waits for
//! leases, starts the provider's program for each lease under a [guard](run_if_guard), streams its output to the server,
//! and reports the result. A report stays on disk until the server has accepted it.
//!
//! [`run`] is the entry point. [`run_if_guard`] is the small program that it starts for each attempt.

pub mod config;
pub mod drain;
pub mod server;

mod agent;
mod attempt;
mod backoff;
mod daemon;
mod directory;
mod host;
mod offers;
mod owner;
mod presence;
mod settings;
mod sign_in;
mod spool;
mod wake;
mod workplace;

pub use config::{Accept, AgentConfig, Config, ConfigErrors, Hosting};
pub use daemon::{RunError, run, run_until};
pub use drain::Drain;
pub use ensemble_process::{Limits, run_if_guard};
pub use host::local;
pub use offers::{NotOffered, Offer, install, offers};
pub use sign_in::Missing;
pub use workplace::{OLDEST_GIT, absent_in_worktree, git_version, uncommitted_files};
