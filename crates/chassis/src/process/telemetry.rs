//! Logs and traces: lines on standard output, spans to OpenTelemetry where a collector is configured.
//!
//! Telemetry that cannot be sent is dropped; it never slows or stops a request.

use std::io::IsTerminal;

use actix_web::http::header::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{TraceContextExt, TracerProvider as _};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::Vars;

/// Where logs and traces go.
pub struct Telemetry {
    json: bool,
    filter: String,
    otlp: Option<String>,
}

/// Sends what is left when the process ends.
pub struct Flush(Option<SdkTracerProvider>);

impl Telemetry {
    pub fn configure(vars: &mut Vars) -> Self {
        let default = if std::io::stdout().is_terminal() { "text" } else { "json" };
        let format = vars.text("LOG_FORMAT", "`json` or `text`; text when standard output is a terminal", default);
        if format != "json" && format != "text" {
            vars.fault("LOG_FORMAT", "must be json or text");
        }
        Self {
            json: format == "json",
            filter: vars.text("RUST_LOG", "which log lines to write, as in `info,ensemble_chassis=debug`", "info"),
            otlp: vars
                .optional("OTEL_EXPORTER_OTLP_ENDPOINT", "the OpenTelemetry collector, as in http://collector:4318"),
        }
    }

    /// Starts logging for the whole process. Call before a runtime is entered: the exporter has a thread of its own.
    pub fn install(self, service: &str) -> Flush {
        let filter = EnvFilter::try_new(&self.filter).unwrap_or_else(|_| EnvFilter::new("info"));
        let lines = tracing_subscriber::fmt::layer();
        let lines = if self.json {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        } else {
            lines.boxed()
        };
        let provider = self.otlp.as_deref().and_then(|endpoint| provider(endpoint, service));
        let spans =
            provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("ensemble")));
        // A second call, as in tests, keeps what the first one installed.
        let _ = tracing_subscriber::registry().with(filter).with(spans).with(lines).try_init();
        Flush(provider)
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(provider) = &self.0
            && let Err(error) = provider.shutdown()
        {
            tracing::debug!(%error, "The last spans could not be sent");
        }
    }
}

/// Makes a span the child of what `traceparent` names (W3C Trace Context).
pub(crate) fn adopt_parent(span: &Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        let parent = TraceContextPropagator::new().extract(&Headers(headers));
        if parent.span().span_context().is_valid() {
            let _ = span.set_parent(parent);
        }
    }
}

/// The `traceparent` that a call out of the present span should carry.
pub fn traceparent() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let known = span.span_context();
    known.is_valid().then(|| format!("00-{}-{}-{:02x}", known.trace_id(), known.span_id(), known.trace_flags()))
}

fn provider(endpoint: &str, service: &str) -> Option<SdkTracerProvider> {
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().with_endpoint(url).build();
    match exporter {
        Ok(exporter) => Some(
            SdkTracerProvider::builder()
                .with_batch_exporter(exporter)
                .with_resource(Resource::builder().with_service_name(format!("ensemble-{service}")).build())
                .build(),
        ),
        Err(error) => {
            eprintln!("Traces cannot be sent to {endpoint}: {error}");
            None
        }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(actix_web::http::header::HeaderName::as_str).collect()
    }
}
