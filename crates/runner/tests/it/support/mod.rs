//! What the tests share: a server that follows a script, runners, programs, and waiting with a deadline.

pub(crate) mod agent;
pub(crate) mod clis;
pub(crate) mod orchestrator;
pub(crate) mod processes;
pub(crate) mod runner;

use std::time::{Duration, Instant};

pub(crate) use agent::{DONE, ScriptAgent};
pub(crate) use orchestrator::Orchestrator;
pub(crate) use runner::{Runner, RunnerProcess, config};

/// Asks again and again until there is an answer. Fails after the deadline.
pub(crate) async fn eventually<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Longer than anything takes on a machine that is busy with something else, too.
pub(crate) const SOON: Duration = Duration::from_secs(60);
