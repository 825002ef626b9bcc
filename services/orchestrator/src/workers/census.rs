//! Counts now and then how much there is to do.

use std::time::Duration;

use ensemble_chassis::Drain;
use tokio::time::timeout;

use crate::metrics::RunMetrics;
use crate::store::Store;

/// As often as Prometheus usually asks.
const EVERY: Duration = Duration::from_secs(15);

pub(crate) async fn count(store: Store, metrics: RunMetrics, drain: Drain) {
    while !drain.is_closing() {
        match store.census().await {
            Ok(census) => metrics.counted(census),
            Err(error) => tracing::debug!(%error, "What there is to do could not be counted"),
        }
        let _ = timeout(EVERY, drain.closing()).await;
    }
}
