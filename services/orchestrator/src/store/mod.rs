//! The database: runs, tasks, leases, outputs. SQL, and nothing but SQL; what a change means is decided by `domain/`.
//!
//! Whoever changes a task holds the lock of its run first ([`held::lock_run`], [`held::Hold`]), and whoever locks several
//! runs does it in the order of their ids; so all changes of a run come one after the other and nobody waits in a circle. Only a heartbeat and a piece of output of an attempt that is
//! known to run do without: they touch their lease alone.

mod calls;
mod cancel;
mod census;
mod create;
mod ending;
mod grant;
mod held;
mod machines;
mod output;
mod queue;
mod read;
mod runners;
mod sql;
mod sweep;
mod timers;
mod turns;
mod whole;

use std::time::Duration;

use ensemble_store_kit::{Db, Notifier, Topic};
use ensemble_types::ids::{LeaseId, RunId, UserId};

use self::queue::Queue;
use self::turns::Turns;

pub(crate) use calls::{LeaseCall, Report};
pub(crate) use census::Census;
pub(crate) use grant::Wanted;
pub(crate) use output::Attempt;
pub(crate) use read::{After, Filter, Seen};
pub(crate) use runners::SeenRunner;
pub(crate) use timers::until;
pub(crate) use whole::{Opened, Whole};

/// How long things last. All of it is configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// A lease lives so long after a heartbeat.
    pub(crate) lease: Duration,
    /// The first heartbeat has to come within this.
    pub(crate) first_beat: Duration,
    /// A runner has so long to end an attempt whose time is up before the service does.
    pub(crate) timeout_grace: Duration,
    /// A runner counts as there for so long after it asked for leases.
    pub(crate) runner_seen: Duration,
    pub(crate) max_losses: i32,
    pub(crate) max_unfinished: i64,
    pub(crate) output_cap: i64,
}

#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
    terms: Terms,
    queue: Queue,
    turns: Turns,
}

impl Store {
    /// To be called on the runtime that lives as long as the process.
    pub(crate) fn new(db: Db, terms: Terms) -> Self {
        Self { queue: Queue::new(db.clone(), terms), turns: Turns::default(), db, terms }
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        self.db.notifier()
    }

    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.db.ready().await
    }
}

/// Told when a run or one of its tasks changed.
pub(crate) fn changed(run: RunId) -> Topic {
    Topic::new("run", run)
}

/// Told when a run has ended.
pub(crate) fn ended(run: RunId) -> Topic {
    Topic::new("ended", run)
}

/// Told when there is work that any machine of the account may take.
pub(crate) fn work(owner: UserId) -> Topic {
    Topic::new("work", owner)
}

/// Told when there is work that only this machine may take.
pub(crate) fn work_for(owner: UserId, machine: &str) -> Topic {
    Topic::new("work", format_args!("{owner}/{machine}"))
}

/// Told when an attempt's output grew, or the attempt ended.
pub(crate) fn output(lease: LeaseId) -> Topic {
    Topic::new("output", lease)
}
