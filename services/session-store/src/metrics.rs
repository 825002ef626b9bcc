//! Metrics of the append queue. No labels: each replica has one queue.

use std::time::Duration;

use ensemble_chassis::metrics::Metrics;
use prometheus::core::Collector;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge};

/// How appends are queued and committed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppendMetrics {
    queued: IntGauge,
    batch_calls: Histogram,
    batch_messages: Histogram,
    waits: Histogram,
    unavailable: IntCounter,
}

/// Counts one queued call until it is dropped.
pub(crate) struct Queued(IntGauge);

impl AppendMetrics {
    /// # Errors
    /// The names are registered already.
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let sizes = vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        let times = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            registered(metrics, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
        };
        Ok(Self {
            queued: registered(
                metrics,
                IntGauge::new("append_queue_depth", "Append calls that are queued or being committed.")?,
            )?,
            batch_calls: histogram("append_batch_calls", "Calls committed together.", &sizes)?,
            batch_messages: histogram("append_batch_messages", "Messages committed together.", &sizes)?,
            waits: histogram("append_wait_seconds", "Time that an append call was queued.", &times)?,
            unavailable: registered(
                metrics,
                IntCounter::new(
                    "append_refused_total",
                    "Append calls answered with 503, most of them because the queue was full.",
                )?,
            )?,
        })
    }

    /// Counts a call as queued until the result is dropped.
    pub(crate) fn track_queued(&self) -> Queued {
        self.queued.inc();
        Queued(self.queued.clone())
    }

    pub(crate) fn observe_wait(&self, wait: Duration) {
        self.waits.observe(wait.as_secs_f64());
    }

    pub(crate) fn observe_batch(&self, calls: usize, messages: usize) {
        self.batch_calls.observe(calls as f64);
        self.batch_messages.observe(messages as f64);
    }

    /// Counts a call that is answered with 503.
    pub(crate) fn count_unavailable(&self) {
        self.unavailable.inc();
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn registered<M: Collector + Clone + 'static>(metrics: &Metrics, metric: M) -> Result<M, prometheus::Error> {
    metrics.registry().register(Box::new(metric.clone()))?;
    Ok(metric)
}
