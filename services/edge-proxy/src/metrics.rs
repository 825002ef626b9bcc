//! The edge's own numbers: how long services take, how many connections there are.

use std::time::Duration;

use actix_web::http::StatusCode;
use prometheus::{HistogramOpts, HistogramVec, IntGauge, Registry};

use crate::domain::route_table::Upstream;

#[derive(Clone, Debug)]
pub(crate) struct EdgeMetrics {
    /// By service and class of status.
    durations: HistogramVec,
    pub connections: IntGauge,
}

impl EdgeMetrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let options = HistogramOpts::new(
            "edge_request_duration_seconds",
            "Time to the head of the answer, by service and class of status.",
        )
        .buckets(vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0]);
        let durations = HistogramVec::new(options, &["to", "status"])?;
        let connections = IntGauge::new("edge_connections", "Client connections that are open.")?;
        registry.register(Box::new(durations.clone()))?;
        registry.register(Box::new(connections.clone()))?;
        Ok(Self { durations, connections })
    }

    pub(crate) fn record(&self, upstream: Option<Upstream>, status: StatusCode, took: Duration) {
        let class = format!("{}xx", status.as_u16() / 100);
        let labels = [upstream.map_or("edge", Upstream::name), &class];
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
