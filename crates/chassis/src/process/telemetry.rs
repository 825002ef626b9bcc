//! Logs and traces: lines on standard output, spans to OpenTelemetry where a collector is configured.
//!
//! Telemetry that cannot be sent is dropped; it never slows or stops a request. A span that ends goes into a bounded queue
//! (and is dropped when the queue is full), and a separate thread sends the spans of the queue.

use std::io::IsTerminal;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider as _};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData, SpanExporter};
use prometheus::IntCounter;
use tracing::{Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::Vars;

/// W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// How long one attempt to send spans may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the end of the process waits for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// The service that receives requests from outside. It ignores the sampling flag of callers, because outside callers must
/// not decide which requests are traced.
const ENTRANCE: &str = "edge-proxy";

/// Where logs and traces go.
pub struct Telemetry {
    json: bool,
    filter: Targets,
    otlp: Option<String>,
    ratio: f64,
}

/// Sends the remaining spans when it is dropped at the end of the process.
pub struct Flush(Option<SdkTracerProvider>);

/// How many spans of this process were sent and lost. All services of the process share these counters.
#[derive(Debug)]
pub(crate) struct SpanCounters {
    pub(crate) sent: IntCounter,
    /// The collector did not accept them.
    pub(crate) lost: IntCounter,
}

impl Telemetry {
    pub fn configure(vars: &mut Vars) -> Self {
        let default = if std::io::stdout().is_terminal() { "text" } else { "json" };
        let format = vars.text("LOG_FORMAT", "`json` or `text`; text when standard output is a terminal", default);
        if format != "json" && format != "text" {
            vars.add_error("LOG_FORMAT", "must be json or text");
        }
        let info = Targets::new().with_default(LevelFilter::INFO);
        let filter = vars.parse("RUST_LOG", "which log lines to write, as in `info,ensemble_chassis=debug`", info);
        let otlp =
            vars.optional("OTEL_EXPORTER_OTLP_ENDPOINT", "the OpenTelemetry collector, as in http://collector:4318");
        let ratio = vars.parse("OTEL_TRACES_SAMPLER_ARG", "share of new traces that are kept, 0 to 1", 1.0);
        if !(0.0..=1.0).contains(&ratio) {
            vars.add_error("OTEL_TRACES_SAMPLER_ARG", "must be 0 to 1");
        }
        Self { json: format == "json", filter, otlp, ratio }
    }

    /// Starts logging for the whole process. Call this before a runtime is entered, because the exporter starts a thread.
    pub fn install(self, service: &str) -> Flush {
        let lines = tracing_subscriber::fmt::layer();
        let lines = if self.json {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        } else {
            lines.boxed()
        };
        // The exporter logs every few seconds that a collector is not available; `Watched` logs it once. For actix a malformed request
        // is an error, which anybody can send: its lines are for `debug`, whatever their level.
        // This is one filter, because with two the outer one would format lines that the inner one drops.
        let wanted = self.filter.clone();
        let is_ours = filter_fn(move |line| match line.target() {
            target if target.starts_with("opentelemetry") => false,
            target if target.starts_with("actix_http") => wanted.would_enable(target, &Level::DEBUG),
            _ => true,
        });
        let lines = lines.with_filter(self.filter.and(is_ours));
        let provider = self.otlp.as_deref().and_then(|endpoint| provider(endpoint, service, self.ratio));
        // Spans below `info` exist for traces only: without a collector they cost nothing. The filter is
        // also set when there is no layer, because a layer without a filter enables all spans.
        let collects = provider.is_some();
        let ours = filter_fn(move |span| collects && span.is_span() && span.target().starts_with("ensemble"))
            .with_max_level_hint(if collects { LevelFilter::DEBUG } else { LevelFilter::OFF });
        let spans = provider.as_ref().map(|provider| {
            tracing_opentelemetry::layer()
                .with_tracer(provider.tracer("ensemble"))
                .with_threads(false)
                .with_location(false)
        });
        let spans = spans.with_filter(ours);
        // A second call, as in tests, keeps what the first one installed.
        let _ = tracing_subscriber::registry().with(spans).with(lines).try_init();
        Flush(provider)
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown_with_timeout(FLUSH_TIMEOUT)
        {
            tracing::debug!(%error, "The last spans could not be sent");
        }
    }
}

/// The counters of this process, which all its services share.
pub(crate) fn span_counters() -> Option<&'static SpanCounters> {
    static COUNTERS: LazyLock<Option<SpanCounters>> = LazyLock::new(|| {
        let sent = IntCounter::new("spans_sent_total", "Spans that the collector took.").ok()?;
        let lost = IntCounter::new("spans_lost_total", "Spans that the collector did not take.").ok()?;
        Some(SpanCounters { sent, lost })
    });
    COUNTERS.as_ref()
}

/// Makes a span the child of the span in `traceparent` (W3C Trace Context).
pub fn adopt_parent(span: &Span, headers: &HeaderMap) {
    if headers.contains_key(TRACEPARENT) {
        adopt(span, &Headers(headers));
    }
}

fn adopt(span: &Span, carrier: &dyn Extractor) {
    let parent = TraceContextPropagator::new().extract(carrier);
    if parent.span().span_context().is_valid() {
        let _ = span.set_parent(parent);
    }
}

/// The `traceparent` for a call from the current span.
pub fn traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// The `traceparent` for a call from `span`.
pub fn traceparent_of(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let known = span.span_context();
    known.is_valid().then(|| format!("00-{}-{}-{:02x}", known.trace_id(), known.span_id(), known.trace_flags()))
}

/// The same as the value of a header.
pub fn traceparent_header(span: &Span) -> Option<HeaderValue> {
    HeaderValue::try_from(traceparent_of(span)?).ok()
}

/// The trace that `span` belongs to, for log lines: its own, or the caller's when no collector is configured.
pub fn trace_id(span: &Span, headers: &HeaderMap) -> Option<String> {
    let own = span.context().span().span_context().clone();
    if own.is_valid() {
        return Some(own.trace_id().to_string());
    }
    let theirs = TraceContextPropagator::new().extract(&Headers(headers));
    let theirs = theirs.span().span_context().clone();
    theirs.is_valid().then(|| theirs.trace_id().to_string())
}

fn provider(endpoint: &str, service: &str, ratio: f64) -> Option<SdkTracerProvider> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter =
        opentelemetry_otlp::SpanExporter::builder().with_http().with_endpoint(url).with_timeout(SEND_TIMEOUT).build();
    let sampler = match service {
        ENTRANCE => Sampler::TraceIdRatioBased(ratio),
        _ => Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))),
    };
    match exporter {
        Ok(exporter) => Some(
            SdkTracerProvider::builder()
                .with_batch_exporter(Watched { exporter, is_away: AtomicBool::new(false) })
                .with_sampler(sampler)
                .with_resource(Resource::builder().with_service_name(format!("ensemble-{service}")).build())
                .build(),
        ),
        Err(error) => {
            eprintln!("Traces cannot be sent to {endpoint}: {error}");
            None
        }
    }
}

/// Counts sent spans, and logs when the collector becomes unavailable and available again.
#[derive(Debug)]
struct Watched<E> {
    exporter: E,
    is_away: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let outcome = self.exporter.export(batch).await;
        if let Some(counters) = span_counters() {
            if outcome.is_ok() { &counters.sent } else { &counters.lost }.inc_by(spans);
        }
        let was_away = self.is_away.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(error) if !was_away => tracing::warn!(%error, "Spans cannot be sent; they are dropped until they can"),
            Ok(()) if was_away => tracing::info!("Spans are sent again"),
            _ => {}
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
