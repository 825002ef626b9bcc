//! What a host is given: how agents are found and started, and how long things may take.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ensemble_types::ids::MachineId;
use tokio::sync::Notify;

use crate::agent::Known;
use crate::backoff::Backoff;

/// The variables of a process.
pub type Environment = BTreeMap<String, String>;

/// Finds an agent of the machine by its name. The error is for people.
pub type Agents = Box<dyn Fn(&str) -> Result<Known, String> + Send + Sync>;

/// How the agents of this machine are started, for tasks and sessions alike.
pub struct Settings {
    pub machine: MachineId,
    /// The environment from which programs inherit the allowed variables.
    pub environment: Environment,
    pub process: ensemble_process::Settings,
    /// Is asked at each start, so a changed configuration counts at once.
    pub agents: Agents,
    /// Agents of sessions that run at once. The default is one for each 600 MiB of memory.
    pub max_agents: Option<u32>,
    pub timing: Timing,
}

impl Settings {
    /// # Errors
    /// There is no such agent. The text is for people.
    pub fn agent(&self, name: &str) -> Result<Known, String> {
        (self.agents)(name)
    }
}

/// Where programs are looked for.
pub fn search_path(environment: &Environment) -> &str {
    environment.get("PATH").map_or("", String::as_str)
}

/// How a machine hosts live sessions.
#[derive(Clone, Debug)]
pub struct Hosting {
    /// The owner's account key, with which the owner's device lists begin. It is not taken from the server.
    pub account: String,
    /// The folder of the sessions. One program hosts them at a time.
    pub folder: PathBuf,
    /// What else belongs to this program: its configuration, keys and data. No look shows any of it.
    pub own: Vec<PathBuf>,
    /// The program does nothing else, and ends some time after its last session.
    pub sessions_only: bool,
    /// Is notified when sessions can be started.
    pub ready: Arc<Notify>,
}

/// How long things of a host may take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long an agent may take until it is ready. Then it is ended.
    pub ready_within: Duration,
    /// How long an agent may continue after an interrupt. Then it is ended.
    pub interrupted_within: Duration,
    /// How long turns may continue after the host was asked to stop. Then they are interrupted.
    pub turn_grace: Duration,
    /// How long a turn continues while no program hosts its session, with an agent that can (codex). Then it is ended.
    pub left_alone: Duration,
    /// An agent that is idle for this long is ended, and started again by the next prompt.
    pub park_after: Duration,
    /// A session that has ended, and was not written to for this long, is not hosted until it is written to.
    pub rest_after: Duration,
    /// How long a program that only hosts sessions stays after the last one.
    pub linger: Duration,
    /// How long a stopping host tries to send what its sessions have said. The next start sends the rest.
    pub deliver_grace: Duration,
    /// How long the owner's program has to make a session's next key after a share was removed. Then this machine makes one.
    pub rekey_grace: Duration,
    /// How long a refused key is retried, because the refusal may be temporary. Then the sessions end here.
    pub refused_grace: Duration,
    /// How long a look at this machine may take.
    pub look_within: Duration,
    /// The pauses before a call is retried.
    pub backoff: Backoff,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ready_within: Duration::from_secs(300),
            interrupted_within: Duration::from_secs(15),
            turn_grace: Duration::from_secs(600),
            left_alone: Duration::from_secs(600),
            park_after: Duration::from_secs(1_800),
            rest_after: Duration::from_secs(60),
            linger: Duration::from_secs(600),
            deliver_grace: Duration::from_secs(10),
            rekey_grace: Duration::from_secs(5),
            refused_grace: Duration::from_secs(20),
            look_within: Duration::from_secs(2),
            backoff: Backoff::default(),
        }
    }
}
