//! SQL, and nothing but SQL: one file per table.

mod accounts;
mod challenges;
mod schema;
mod signing_keys;
mod tokens;

use ensemble_store_kit::Db;

pub(crate) use challenges::SignInOutcome;
pub(crate) use signing_keys::{KeyRow, KeyTable};
pub(crate) use tokens::After;

/// The database of this service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    db: Db,
}

impl Store {
    pub(crate) fn new(db: Db) -> Self {
        Self { db }
    }

    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.db.ready().await
    }
}
