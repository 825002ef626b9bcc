//! Programs on a user's machine: found, started under a [guard](run_if_guard), and ended with all their processes.
//!
//! It knows no task, no session and no server.

pub mod disk;
pub mod orphans;

mod guard;
mod process;
mod program;

pub use guard::{Directory, EXIT_STAGE, Found, Limits, below, default_guard, run_if_guard};
pub use process::{Exit, Process, Settings, Start};
pub use program::{find, this_program};
