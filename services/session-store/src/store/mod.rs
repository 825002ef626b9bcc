//! All SQL of this service. Permission is decided inside, from rows that are locked or read together with what it is for.

mod append;
mod history;
mod links;
mod lock;
mod purge;
mod schema;
mod session_list;
mod sessions;
mod shares;
mod stream;
mod sweep;
mod tail;

use std::time::Duration;

use ensemble_store_kit::{Db, Subscription, Topic};
use ensemble_types::ids::{SessionId, UserId};

pub(crate) use append::{AppendLimits, Appended, Appender, Stored};
pub(crate) use links::PublicReader;
pub(crate) use purge::Purged;
pub(crate) use session_list::Page;
pub(crate) use sessions::NewSession;
pub(crate) use stream::{Place, Step, Watcher};
pub(crate) use sweep::Sweep;
pub(crate) use tail::Tail;

use self::tail::Tails;

/// The sessions, on whichever database. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
    /// How long a session counts as online after a heartbeat.
    online_for: Duration,
    tails: Tails,
}

impl Store {
    pub(crate) fn new(db: Db, online_for: Duration) -> Self {
        Self { db, online_for, tails: Tails::default() }
    }

    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.db.ready().await
    }

    /// Notifier with every change of a session that its streams must look at.
    pub(crate) fn watch(&self, session: SessionId) -> Subscription {
        self.db.notifier().subscribe(topic(session))
    }

    /// Notifier when sessions of anybody were deleted in this process, so that the purge need not wait.
    pub(crate) fn watch_deletions(&self) -> Subscription {
        self.db.notifier().subscribe(deletions())
    }
}

const KIND: &str = "session";

fn topic(session: SessionId) -> Topic {
    Topic::new(KIND, session)
}

fn deletions() -> Topic {
    Topic::new("purge", "sessions")
}

/// Who asks for a list, and so whose cursors fit it.
fn list_name(name: &str, user: UserId) -> String {
    format!("{name} {user}")
}
