//! What the writer is busy with. No labels: it is one for each replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ensemble_chassis::metrics::Metrics;
use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

/// How appends queue up and are committed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AppendMetrics {
    /// Calls that wait, for the reading of [`AppendMetrics::new`].
    queued: Arc<AtomicUsize>,
    batch_calls: Histogram,
    batch_messages: Histogram,
    waits: Histogram,
    refused: IntCounter,
}

impl AppendMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let sizes = vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        let times = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
        let registry = metrics.registry();
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let queued = Arc::<AtomicUsize>::default();
        let reading = Arc::clone(&queued);
        metrics.reading("append_queue_depth", "Appends that wait for the writer.", &[], move || {
            reading.load(Ordering::Relaxed) as f64
        })?;
        Ok(Self {
            queued,
            batch_calls: histogram("append_batch_calls", "Calls that were committed together.", &sizes)?,
            batch_messages: histogram("append_batch_messages", "Messages that were committed together.", &sizes)?,
            waits: histogram("append_wait_seconds", "Time until the writer took an append.", &times)?,
            refused: refused(registry)?,
        })
    }

    pub(crate) fn queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn taken(&self, waited: Duration) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.waits.observe(waited.as_secs_f64());
    }

    pub(crate) fn batch(&self, calls: usize, messages: usize) {
        self.batch_calls.observe(calls as f64);
        self.batch_messages.observe(messages as f64);
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }
}

fn refused(registry: &Registry) -> Result<IntCounter, prometheus::Error> {
    let refused = IntCounter::new("append_refused_total", "Appends that were refused because too many waited.")?;
    registry.register(Box::new(refused.clone()))?;
    Ok(refused)
}
