//! How much there is to do, for dashboards.

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use ensemble_store_kit::{StoreError, on};

use super::Store;
use super::sql::{Sql, sql};

/// What is not finished, of all accounts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    pub(crate) runs: i64,
    pub(crate) queued: i64,
    /// Of the queued ones, those that wait for nothing but a runner.
    pub(crate) ready: i64,
    pub(crate) running: i64,
    pub(crate) leases: i64,
}

impl Store {
    /// Counts over the runs that have not ended, of which an index knows.
    pub(crate) async fn census(&self) -> Result<Census, StoreError> {
        self.db
            .read("count what there is to do", |c| {
                let query: Sql<(BigInt, BigInt, BigInt, BigInt, BigInt)> = sql(
                    "SELECT COUNT(*), COALESCE(SUM(queued), 0), COALESCE(SUM(ready), 0), COALESCE(SUM(running), 0), \
                     (SELECT COUNT(*) FROM leases WHERE ended_at IS NULL) FROM runs WHERE finished_at IS NULL",
                    Vec::new(),
                );
                let (runs, queued, ready, running, leases) = on!(c, |c| query.get_result(c))?;
                Ok(Census { runs, queued, ready, running, leases })
            })
            .await
    }
}
