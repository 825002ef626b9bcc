//! The net under the wake-ups: one question every few seconds about all sessions that are watched here, so that a change
//! whose wake-up was lost is found.

use std::collections::HashMap;

use diesel::prelude::*;
use ensemble_store_kit::on;
use ensemble_store_kit::types::IntoDb;
use ensemble_types::ids::SessionId;

use super::schema::sessions;
use super::{KIND, Store, topic};
use crate::error::Error;

/// What was true of the watched sessions when last asked.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    seen: HashMap<SessionId, (i64, i64)>,
}

impl Store {
    /// Notifier the watchers of sessions that changed since the last sweep, or that are watched only since.
    pub(crate) async fn sweep(&self, sweep: &mut Sweep) -> Result<(), Error> {
        let wakes = self.db.notifier();
        let watched: Vec<SessionId> =
            wakes.subscribed(KIND).iter().filter_map(|topic| topic.id().parse().ok()).collect();
        if watched.is_empty() {
            sweep.seen.clear();
            return Ok(());
        }
        let ids: Vec<_> = watched.iter().map(|id| id.db()).collect();
        let found: Vec<(SessionId, i64, i64)> = self
            .db
            .read("sweep watched sessions", move |c| {
                Ok::<_, Error>(on!(c, |c| sessions::table
                    .filter(sessions::id.eq_any(&ids))
                    .select((sessions::id, sessions::last_seq, sessions::revision))
                    .load(c))?)
            })
            .await?;
        let now: HashMap<SessionId, (i64, i64)> =
            found.into_iter().map(|(id, seq, revision)| (id, (seq, revision))).collect();
        // A session that is purged is in neither picture any more, and its watchers were told when it was deleted.
        let changed: Vec<_> = watched.into_iter().filter(|id| now.get(id) != sweep.seen.get(id)).map(topic).collect();
        wakes.deliver(&changed);
        sweep.seen = now;
        Ok(())
    }
}
