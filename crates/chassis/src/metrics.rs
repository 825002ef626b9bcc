//! Metrics for Prometheus. Labels have few values: the template of a route and the code of a status, never an id.

use std::time::Duration;

use actix_web::http::Method;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Gauge, HistogramOpts, HistogramVec, Opts, Registry, TextEncoder};

use crate::http::InFlight;
use crate::process::telemetry::span_counters;
use crate::process::usage::ProcessUsage;

/// The registry of one running service. Cheap to clone; services register their own collectors here.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Requests,
}

/// Counts and durations of requests by route and status.
#[derive(Clone, Debug)]
pub struct Requests(HistogramVec);

impl Metrics {
    /// `service` becomes a label on every metric.
    pub fn new(service: &str) -> Result<Self, prometheus::Error> {
        let labels = [("service".to_owned(), service.to_owned())].into();
        let registry = Registry::new_custom(Some("ensemble".to_owned()), Some(labels))?;
        let options =
            HistogramOpts::new("http_request_duration_seconds", "Time to the head of the answer, by route and status.")
                .buckets(vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0]);
        let histogram = HistogramVec::new(options, &["method", "route", "status"])?;
        registry.register(Box::new(histogram.clone()))?;
        registry.register(Box::new(ProcessUsage::new()?))?;
        if let Some(spans) = span_counters() {
            registry.register(Box::new(spans.sent.clone()))?;
            registry.register(Box::new(spans.lost.clone()))?;
        }
        let build = Opts::new("build_info", "Always 1; says which build this is.")
            .const_label("version", env!("CARGO_PKG_VERSION"))
            .const_label("commit", option_env!("BUILD_COMMIT").unwrap_or_default());
        let build = Gauge::with_opts(build)?;
        build.set(1.0);
        registry.register(Box::new(build))?;
        Ok(Self { registry, requests: Requests(histogram) })
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A gauge that is read when Prometheus scrapes, such as the depth of a queue. `labels` are constant.
    pub fn reading(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let options =
            labels.iter().fold(Opts::new(name, help), |options, (name, value)| options.const_label(*name, *value));
        self.registry.register(Box::new(Reading { gauge: Gauge::with_opts(options)?, read: Box::new(read) }))
    }

    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    pub(crate) fn watch(&self, in_flight: InFlight) -> Result<(), prometheus::Error> {
        let help = "Requests that have not been answered to the last byte.";
        self.reading("http_requests_in_flight", help, &[], move || in_flight.count() as f64)
    }

    /// The text format of Prometheus, version 0.0.4.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            tracing::warn!(%error, "Metrics could not be written");
        }
        out
    }
}

impl Requests {
    pub(crate) fn record(&self, method: &Method, route: &str, status: u16, took: Duration) {
        let mut digits = [0_u8; 3];
        let status = three_digits(status, &mut digits);
        // Methods that no route has share one label, so that a caller cannot make up labels.
        let method = match method.as_str() {
            known @ ("GET" | "HEAD" | "POST" | "PATCH" | "PUT" | "DELETE" | "OPTIONS") => known,
            _ => "other",
        };
        self.0.with_label_values(&[method, route, status]).observe(took.as_secs_f64());
    }
}

struct Reading {
    gauge: Gauge,
    read: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl Collector for Reading {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set((self.read)());
        self.gauge.collect()
    }
}

fn three_digits(status: u16, out: &mut [u8; 3]) -> &str {
    for (place, divisor) in out.iter_mut().zip([100, 10, 1]) {
        *place = b'0' + u8::try_from(status / divisor % 10).unwrap_or(0);
    }
    std::str::from_utf8(out).unwrap_or("000")
}
