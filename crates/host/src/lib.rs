//! Live sessions on a machine: a real agent works there, and people see and steer it through the server, which cannot read any of it.
//!
//! A step of a session goes one way: an agent's line or a person's command comes to the session's task, `core` decides, the changes are
//! written to the `spool`, and then they are sent and the agent gets its orders.
//!
//! [`run`] hosts the sessions of a machine. [`Agent`] is one driver with its process, which tasks of runs use without a session.

pub mod conversations;
pub mod demo;
pub mod drain;
pub mod local;
pub mod sign_in;
pub mod wake;

mod abilities;
mod account;
mod agent;
mod background;
mod backoff;
mod begin;
mod behind;
mod confirm;
mod core;
mod deadlines;
mod deliver;
mod hints;
mod kept;
mod keys;
mod leftovers;
mod look;
mod mcp;
mod pause;
mod place;
mod receive;
mod reopen;
mod rest;
mod room;
mod run;
mod running;
mod served;
mod session;
mod settings;
mod shown;
mod socket;
mod spool;
mod starting;
mod status;
mod tasks;
mod titles;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ensemble_client::Client;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::BoxKeyPair;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::time::Timestamp;
use tokio::sync::{Mutex, Notify, mpsc};

use account::Lists;
use hints::Wakers;
use look::Looks;
use room::Room;
use served::Servers;
use session::Session;
use tasks::Sessions;

pub use self::core::TaskState;
pub use agent::{Agent, Happened, How, Known, inherited_env, until_resumable};
pub use backoff::Backoff;
pub use drain::Drain;
pub use kept::TaskEnd;
pub use pause::Pause;
pub use place::Folder;
pub use room::NotBegun;
pub use run::run;
pub use settings::{Agents, Environment, Hosting, Settings, Timing, search_path};
pub use tasks::TaskTurn;

/// What all sessions of this machine share.
pub struct Host {
    settings: Arc<Settings>,
    /// The program does nothing else.
    sessions_only: bool,
    client: Client,
    /// The machine's key.
    key: AccountKey,
    boxed: Arc<BoxKeyPair>,
    owner: UserId,
    lists: Arc<Lists>,
    name: place::Name,
    sessions: PathBuf,
    drain: Drain,
    wakers: Wakers,
    hosted: Sessions,
    room: Room,
    servers: Servers,
    looks: Looks,
    /// The variables of the terminals in which sessions of this process were begun. They hold keys, so they are never on disk.
    environments: std::sync::Mutex<HashMap<SessionId, Environment>>,
    /// Each session that has not ended holds one.
    unended: Arc<()>,
    /// Is notified when a session has ended.
    used: Notify,
    /// New sessions, for the task that runs them.
    begun: mpsc::Sender<Session>,
    /// Sessions that rest and are to be hosted again.
    rested: mpsc::Sender<SessionId>,
    /// One session begins at a time.
    starting: Mutex<()>,
}

#[expect(clippy::disallowed_methods, reason = "messages have the time of this machine's clock")]
pub fn clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_micros(0).plus(since)
}

impl Host {
    pub(crate) fn is_for_sessions_only(&self) -> bool {
        self.sessions_only
    }

    pub fn now(&self) -> Timestamp {
        clock()
    }

    pub fn owner(&self) -> UserId {
        self.owner
    }

    /// Opens what is sealed for this machine.
    pub fn box_key(&self) -> &BoxKeyPair {
        &self.boxed
    }

    /// How many seconds this machine's clock is ahead of the server's.
    pub fn clock_ahead(&self) -> i64 {
        self.client.clock().ahead()
    }

    /// Whether every session has ended.
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.unended) == 1
    }
}
