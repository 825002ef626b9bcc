//! What the tests share: a scripted server, runners, and the programs that they start.

pub(crate) mod agent;
pub(crate) mod clis;
pub(crate) mod orchestrator;
pub(crate) mod processes;
pub(crate) mod runner;

use std::time::Duration;

pub(crate) use agent::{DONE, ScriptAgent};
pub(crate) use orchestrator::Orchestrator;
pub(crate) use runner::{Runner, RunnerProcess, config};

/// A deadline for tests that also holds on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(120);
