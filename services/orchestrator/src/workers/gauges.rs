//! Counts the unfinished runs, tasks and leases for Prometheus.

use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;
use tokio::time::timeout;

use crate::metrics::RunMetrics;
use crate::operations::runs::count_unfinished;

/// As often as Prometheus usually scrapes.
const EVERY: Duration = Duration::from_secs(15);

pub(crate) async fn run(db: Db, metrics: RunMetrics, drain: Drain) {
    while !drain.is_closing() {
        match count_unfinished(&db).await {
            Ok(unfinished) => metrics.set_unfinished(unfinished),
            Err(error) => tracing::debug!(%error, "Could not count the unfinished runs"),
        }
        // The timeout is the normal end of the wait.
        let _ = timeout(EVERY, drain.closing()).await;
    }
}
