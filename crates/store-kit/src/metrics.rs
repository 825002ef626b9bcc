//! Metrics of a database. Operations are named by the code, so the number of labels is bounded.

use std::sync::Weak;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, Registry};

use crate::notifier::Notifier;
use crate::pool::Pool;

/// Durations of one database's operations. They are counted from the start and exported by [`crate::Db::register`].
#[derive(Clone)]
pub(crate) struct DbMetrics {
    operations: HistogramVec,
    waits: Histogram,
}

/// How an operation ended, as a label.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Ok,
    /// Refused, by a rule of the service or by the database.
    Error,
    /// The connection was lost, or the database did not answer in time.
    Unavailable,
}

impl DbMetrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let buckets = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
        let operations = HistogramOpts::new("db_operation_duration_seconds", "Time with a connection, by operation.")
            .buckets(buckets.clone());
        let waits = HistogramOpts::new("db_pool_wait_seconds", "Time until a connection was free.").buckets(buckets);
        Ok(Self {
            operations: HistogramVec::new(operations, &["operation", "outcome"])?,
            waits: Histogram::with_opts(waits)?,
        })
    }

    pub(crate) fn waited(&self, took: Duration) {
        self.waits.observe(took.as_secs_f64());
    }

    pub(crate) fn done(&self, operation: &str, outcome: Outcome, took: Duration) {
        let outcome = match outcome {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Unavailable => "unavailable",
        };
        self.operations.with_label_values(&[operation, outcome]).observe(took.as_secs_f64());
    }

    pub(crate) fn register(
        &self,
        registry: &Registry,
        pools: Vec<(&'static str, Weak<Pool>)>,
        notifier: Notifier,
    ) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.operations.clone()))?;
        registry.register(Box::new(self.waits.clone()))?;
        registry.register(Box::new(Pools::new(pools, notifier)?))
    }
}

/// Gauges that are read when Prometheus asks for them.
struct Pools {
    pools: Vec<(&'static str, Weak<Pool>)>,
    notifier: Notifier,
    connections: GaugeVec,
    limit: GaugeVec,
    waiting: GaugeVec,
    topics: Gauge,
    connected: Gauge,
}

impl Pools {
    fn new(pools: Vec<(&'static str, Weak<Pool>)>, notifier: Notifier) -> Result<Self, prometheus::Error> {
        let vec = |name: &str, help: &str, labels: &[&str]| GaugeVec::new(Opts::new(name, help), labels);
        Ok(Self {
            pools,
            notifier,
            connections: vec("db_pool_connections", "Connections that are open.", &["pool", "state"])?,
            limit: vec("db_pool_limit", "Connections that may be open.", &["pool"])?,
            waiting: vec("db_pool_waiting", "Callers that wait for a connection.", &["pool"])?,
            topics: Gauge::new("wake_topics", "Topics with subscribers on this replica.")?,
            connected: Gauge::new("wake_connected", "1 while notifications of other replicas arrive.")?,
        })
    }
}

impl Collector for Pools {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.connections.desc();
        all.extend(self.limit.desc());
        all.extend(self.waiting.desc());
        all.extend(self.topics.desc());
        all.extend(self.connected.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        for (name, pool) in &self.pools {
            let Some(pool) = pool.upgrade() else { continue };
            let usage = pool.usage();
            self.connections.with_label_values(&[*name, "used"]).set(usage.used as f64);
            self.connections.with_label_values(&[*name, "idle"]).set(usage.idle as f64);
            self.limit.with_label_values(&[name]).set(usage.limit as f64);
            self.waiting.with_label_values(&[name]).set(usage.waiting as f64);
        }
        self.topics.set(self.notifier.topics() as f64);
        self.connected.set(f64::from(u8::from(self.notifier.is_connected())));
        let mut all = self.connections.collect();
        all.extend(self.limit.collect());
        all.extend(self.waiting.collect());
        all.extend(self.topics.collect());
        all.extend(self.connected.collect());
        all
    }
}
