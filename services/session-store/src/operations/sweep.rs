//! Finds changes of watched sessions whose notification was lost: one query every few seconds for all sessions that have a
//! stream on this replica.

use std::collections::HashMap;

use ensemble_store_kit::{Db, Topic};
use ensemble_types::ids::SessionId;

use super::{SESSION_TOPICS, session_topic};
use crate::error::Error;
use crate::store;
use crate::store::sessions::Revision;

/// The revisions of the watched sessions, as of the last sweep.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    seen: HashMap<SessionId, Revision>,
}

impl Sweep {
    /// Wakes the streams of sessions that have changed, or that were not watched, at the last sweep.
    pub(crate) async fn run(&mut self, db: &Db) -> Result<(), Error> {
        let notifier = db.notifier();
        let watched: Vec<SessionId> =
            notifier.subscribed(SESSION_TOPICS).iter().filter_map(|topic| topic.id().parse().ok()).collect();
        if watched.is_empty() {
            self.seen.clear();
            return Ok(());
        }
        let ids = watched.clone();
        let found =
            db.read("sweep watched sessions", move |c| Ok::<_, Error>(store::sessions::revisions(c, &ids)?)).await?;
        let now: HashMap<SessionId, Revision> = found.into_iter().collect();
        // A purged session is in neither map; its streams ended when it was deleted.
        let changed: Vec<Topic> =
            watched.into_iter().filter(|id| now.get(id) != self.seen.get(id)).map(session_topic).collect();
        notifier.deliver(&changed);
        self.seen = now;
        Ok(())
    }
}
