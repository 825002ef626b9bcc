//! Gives hints of machines whose heartbeats have ended, because nothing else happens then.

use std::time::Duration;

use ensemble_chassis::{Clock, Drain};
use ensemble_store_kit::Db;
use tokio::time::timeout;

use crate::operations::presence::Presences;

/// What the loop needs.
pub(crate) struct Absences {
    pub(crate) db: Db,
    pub(crate) presences: Presences,
    pub(crate) online_for: Duration,
    pub(crate) clock: Clock,
    pub(crate) drain: Drain,
}

impl Absences {
    pub(crate) async fn run(self) {
        let every = (self.online_for / 10).max(Duration::from_millis(20));
        while !self.drain.is_closing() {
            self.presences.give_gone(&self.db, self.online_for, self.clock.now());
            // The timeout is the normal end of the wait.
            let _ = timeout(every, self.drain.closing()).await;
        }
    }
}
