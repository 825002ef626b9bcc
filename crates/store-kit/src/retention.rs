//! Metrics of what a service keeps, and of what it removes because it is over or was deleted.
//!
//! How much accounts store is exported as a histogram over the accounts and the largest of them. A label for each account would have no
//! bound, and readers of metrics do not need to know who stores much: an operator asks the database for the names.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};
use tokio::time::timeout;

use crate::{Conn, Db, StoreError};

/// How often it is read what accounts store: a sum over the rows of all of them.
const MEASURED: Duration = Duration::from_secs(600);
const MIB: f64 = 1_048_576.0;

/// The shortest rest.
const REST: Duration = Duration::from_millis(5);
/// The longest, where the database is slow.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The pause after a batch that was removed. A purge works a fifth of the time, so that no caller has to wait for it.
#[must_use]
pub fn rest_after(batch: Duration) -> Duration {
    batch.saturating_mul(4).clamp(REST, LONGEST_REST)
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Retention {
    removed: IntCounterVec,
    stored: Stored,
    largest: IntGauge,
}

impl Retention {
    /// # Errors
    /// The names are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let removed = Opts::new("removed_rows_total", "Rows removed because they were over or deleted, by kind.");
        let removed = IntCounterVec::new(removed, &["what"])?;
        let first = of_accounts()?;
        let stored = Stored { newest: Arc::new(Mutex::new(first.clone())), first };
        let largest = IntGauge::new("account_stored_largest_bytes", "What the account stores that stores most.")?;
        registry.register(Box::new(removed.clone()))?;
        registry.register(Box::new(stored.clone()))?;
        registry.register(Box::new(largest.clone()))?;
        Ok(Self { removed, stored, largest })
    }

    pub fn count_removed(&self, what: &'static str, rows: usize) {
        self.removed.with_label_values(&[what]).inc_by(u64::try_from(rows).unwrap_or(u64::MAX));
    }

    /// Reads what each account stores, now and again and again, until `closing` completes.
    pub async fn measure(
        self,
        db: Db,
        closing: impl Future<Output = ()>,
        read: fn(&mut Conn) -> Result<Vec<i64>, StoreError>,
    ) {
        let mut closing = pin!(closing);
        loop {
            match db.read("measure what accounts store", read).await {
                Ok(bytes) => self.set_stored(&bytes),
                Err(error) => tracing::debug!(%error, "Could not measure what accounts store"),
            }
            if timeout(MEASURED, closing.as_mut()).await.is_ok() {
                return;
            }
        }
    }

    /// The bytes of each account, in any order.
    fn set_stored(&self, bytes: &[i64]) {
        let Ok(fresh) = of_accounts() else { return };
        bytes.iter().for_each(|bytes| fresh.observe(*bytes as f64));
        self.largest.set(bytes.iter().copied().max().unwrap_or(0));
        *self.stored.newest.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

fn of_accounts() -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts::new(
        "account_stored_bytes",
        "What accounts store now: how many of them store how much, and all of it. Not a count over time.",
    );
    Histogram::with_opts(options.buckets((0..8).map(|power| MIB * 10_f64.powi(power)).collect()))
}

/// The newest measurement. The first one describes them all.
#[derive(Clone)]
struct Stored {
    newest: Arc<Mutex<Histogram>>,
    first: Histogram,
}

impl Collector for Stored {
    fn desc(&self) -> Vec<&Desc> {
        self.first.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_replaces_the_one_before() {
        let registry = Registry::new();
        let retention = Retention::new(&registry).unwrap();
        let text = || prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(text().contains("account_stored_bytes_count 0\n"));
        retention.set_stored(&[10, 20, 5 << 20]);
        retention.set_stored(&[10, 5 << 20]);
        retention.count_removed("messages", 3);
        for line in [
            "account_stored_bytes_bucket{le=\"1048576\"} 1\n",
            "account_stored_bytes_bucket{le=\"10485760\"} 2\n",
            "account_stored_bytes_count 2\n",
            "account_stored_bytes_sum 5242890\n",
            "account_stored_largest_bytes 5242880\n",
            "removed_rows_total{what=\"messages\"} 3\n",
        ] {
            assert!(text().contains(line), "{line}: {}", text());
        }
    }
}
