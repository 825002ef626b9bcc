//! The runner: a daemon on a user's machine that takes tasks from the orchestrator and has coding agents do them.
//!
//! It calls out and nothing calls in. It signs in with a machine token, says every few seconds that its machine is
//! there, waits for leases, starts the provider's program for each under a [guard](guard_main), streams what it says
//! back, and reports what it came to. A report is kept on disk until the server has taken it.
//!
//! [`run`] is the whole of it; [`guard_main`] is the small program that it starts for each attempt.

pub mod config;
pub mod drain;
pub mod provider;
pub mod server;

mod attempt;
mod backoff;
mod daemon;
mod directory;
mod disk;
mod guard;
mod presence;
mod spool;
mod strays;
mod wake;

pub use config::{Config, ConfigErrors};
pub use daemon::{RunError, offers, run, run_until};
pub use drain::Drain;
pub use guard::{Limits, guard_main};
