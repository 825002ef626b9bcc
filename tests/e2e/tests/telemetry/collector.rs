//! An OpenTelemetry collector that stores every span, for protobuf over HTTP only.

use std::sync::{Arc, Mutex, PoisonError};

use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer};
use ensemble_testkit::{SOON, poll};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;

/// One span as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// As in `ensemble-session-store`.
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty when there is no parent.
    pub(crate) parent: String,
    pub(crate) attributes: Vec<(String, String)>,
}

/// A running collector. It ends with its runtime.
#[derive(Clone)]
pub(crate) struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    bodies: Arc<Mutex<Vec<Bytes>>>,
    pub(crate) url: String,
}

impl Collector {
    /// Listens on a free port of this machine.
    pub(crate) fn start() -> std::io::Result<Self> {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let bodies = Arc::<Mutex<Vec<Bytes>>>::default();
        let (stored, whole) = (web::Data::from(Arc::clone(&spans)), web::Data::from(Arc::clone(&bodies)));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(stored.clone())
                .app_data(whole.clone())
                .app_data(web::PayloadConfig::new(16 << 20))
                .route("/v1/traces", web::post().to(take))
        })
        .workers(1)
        .disable_signals()
        .bind(("127.0.0.1", 0))?;
        let url = server.addrs().first().map(|address| format!("http://{address}")).unwrap_or_default();
        tokio::spawn(server.run());
        Ok(Self { spans, bodies, url })
    }

    /// Waits until `complete` accepts the spans of the trace, and returns them. After a minute it returns what there is.
    pub(crate) async fn trace(&self, trace: &str, complete: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        poll(SOON, async || complete(&self.now(trace)).then_some(())).await;
        self.now(trace)
    }

    /// Whether this text is anywhere in what was sent: protobuf has texts as they are.
    pub(crate) fn has(&self, text: &str) -> bool {
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().any(|body| body.windows(text.len()).any(|window| window == text.as_bytes()))
    }

    fn now(&self, trace: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

async fn take(body: Bytes, stored: web::Data<Mutex<Vec<Span>>>, whole: web::Data<Mutex<Vec<Bytes>>>) -> HttpResponse {
    whole.lock().unwrap_or_else(PoisonError::into_inner).push(body.clone());
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return HttpResponse::BadRequest().finish() };
    let mut spans = stored.lock().unwrap_or_else(PoisonError::into_inner);
    for of_service in request.resource_spans {
        let attributes = of_service.resource.map(|resource| words(resource.attributes)).unwrap_or_default();
        let service = attributes.into_iter().find(|(name, _)| name == "service.name").map(|(_, name)| name);
        for span in of_service.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                service: service.clone().unwrap_or_default(),
                kind: span.kind(),
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: words(span.attributes),
                name: span.name,
            });
        }
    }
    HttpResponse::Ok().content_type("application/x-protobuf").finish()
}

fn words(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    attributes.into_iter().map(|attribute| (attribute.key, attribute.value.map(text).unwrap_or_default())).collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        Some(any_value::Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
