//! What a lost wake-up would have told: asked for those only who wait at this replica.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::types::{Moment, Uid};
use ensemble_store_kit::{StoreError, on};
use ensemble_types::ids::{RunId, UserId};
use ensemble_types::time::Timestamp;

use super::Store;
use super::sql::{Sql, ids, sql};

impl Store {
    /// The versions of these runs as they are now; for the sweep.
    pub(crate) async fn versions(&self, of: Vec<RunId>) -> Result<Vec<(RunId, i64)>, StoreError> {
        self.db
            .read("sweep the runs that are waited for", move |c| {
                let query: Sql<(Uid, BigInt)> =
                    sql("SELECT id, version FROM runs WHERE id IN {}", vec![ids(of.iter().copied())]);
                on!(c, |c| query.load(c))
            })
            .await
    }

    /// For each of these accounts that has work for runners, when that last changed; for the sweep.
    pub(crate) async fn with_work(&self, of: Vec<UserId>) -> Result<Vec<(UserId, Timestamp)>, StoreError> {
        self.db
            .read("sweep the accounts whose runners wait", move |c| {
                let query: Sql<(Uid, Moment)> = sql(
                    "SELECT owner_id, MAX(updated_at) FROM runs WHERE owner_id IN {} AND ready > 0 \
                     AND running < max_concurrency GROUP BY owner_id",
                    vec![ids(of.iter().copied())],
                );
                on!(c, |c| query.load(c))
            })
            .await
    }
}
