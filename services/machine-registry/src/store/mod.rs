//! SQL, and nothing but SQL: one file per table. Decisions are made by `domain/` on rows that are locked here.

mod departures;
mod machines;
mod schema;

use std::time::Duration;

use ensemble_store_kit::Db;

pub(crate) use departures::Departure;
pub(crate) use machines::After;

/// The database of this service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
    /// How long a machine counts as online after a heartbeat.
    online_for: Duration,
}

impl Store {
    pub(crate) fn new(db: Db, online_for: Duration) -> Self {
        Self { db, online_for }
    }

    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.db.ready().await
    }
}
