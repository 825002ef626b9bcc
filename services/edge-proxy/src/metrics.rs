//! The edge's own numbers: how long services take, how many connections there are.

use std::time::Duration;

use actix_web::http::StatusCode;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntGauge, Registry};

use crate::domain::route_table::{PerUpstream, Upstream};

/// By service and class of status. All of them are made at the start, so that counting is an atomic addition.
#[derive(Clone, Debug)]
pub(crate) struct EdgeMetrics {
    services: PerUpstream<ByStatus>,
    edge: ByStatus,
    pub connections: IntGauge,
}

#[derive(Clone, Debug)]
struct ByStatus([Histogram; 4]);

impl EdgeMetrics {
    /// # Errors
    /// The names are taken.
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
        let by_status =
            |to: &str| ByStatus(["2xx", "3xx", "4xx", "5xx"].map(|status| durations.with_label_values(&[to, status])));
        Ok(Self {
            services: PerUpstream::new(|upstream| by_status(upstream.name())),
            edge: by_status("edge"),
            connections,
        })
    }

    pub(crate) fn record(&self, upstream: Option<Upstream>, status: StatusCode, took: Duration) {
        let ByStatus([success, redirect, client, server]) =
            upstream.map_or(&self.edge, |upstream| self.services.of(upstream));
        let histogram = match status.as_u16() {
            ..300 => success,
            300..400 => redirect,
            400..500 => client,
            _ => server,
        };
        histogram.observe(took.as_secs_f64());
    }
}
