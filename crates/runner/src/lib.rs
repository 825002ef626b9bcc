//! The runner: a daemon on a user's machine that takes tasks from the orchestrator and runs coding agents for them.
//!
//! All connections are outgoing. The runner signs in with a machine token, sends the machine's heartbeat, waits for
//! leases, starts the provider's program for each lease under a [guard](run_if_guard), streams its output to the server,
//! and reports the result. A report stays on disk until the server has accepted it.
//! Live sessions are hosted by `ensemble_host`, which drives agents for tasks as well.
//!
//! [`run`] is the entry point. [`run_if_guard`] is the small program that it starts for each attempt.

pub mod config;
pub mod server;

mod attempt;
mod daemon;
mod directory;
mod excerpt;
mod offers;
mod outcome;
mod owner;
mod presence;
mod spool;
mod workplace;

pub use config::{Accept, AgentConfig, Config, ConfigErrors};
pub use daemon::{RunError, run, run_until};
pub use ensemble_host::demo::run_if_demo;
pub use ensemble_process::{Limits, run_if_guard};
pub use offers::{NotOffered, Offer, offers};
pub use workplace::{OLDEST_GIT, absent_in_worktree, git_version, uncommitted_files};
