//! Gives every request an id, a span, a log line and metrics, and counts the requests in flight, because the drain waits
//! for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, HttpRequest, web};
use tracing::Instrument;

use super::keeping::Keeping;
use crate::metrics::Requests;
use crate::process::{Drain, telemetry};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of one request in answers and logs.
#[derive(Clone, Debug)]
pub struct RequestId(pub Arc<str>);

/// The route of a request that a service takes by its path's prefix, in place of "unmatched". It has few values.
#[derive(Clone, Copy, Debug)]
pub struct Route(pub &'static str);

impl Route {
    /// Names the route of this request in its span, its line and the metrics.
    pub fn name(self, request: &HttpRequest) {
        let span = tracing::Span::current();
        span.record("http.route", self.0);
        span.record("otel.name", format!("{} {}", request.method(), self.0));
        request.extensions_mut().insert(self);
    }
}

/// How many requests have not been answered to the last byte.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more request until the guard is dropped.
    pub fn enter(&self) -> InFlightGuard {
        self.0.fetch_add(1, Ordering::SeqCst);
        InFlightGuard(Arc::clone(&self.0))
    }
}

/// One request that counts as in flight until this is dropped.
#[derive(Debug)]
pub struct InFlightGuard(Arc<AtomicUsize>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The application data that [`observe`] needs.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) requests: Requests,
    pub(crate) in_flight: InFlight,
    pub(crate) drain: Drain,
}

pub(crate) async fn observe<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<Keeping<B, InFlightGuard>>, actix_web::Error> {
    let Some(observer) = request.app_data::<web::Data<Observer>>().cloned() else {
        return Err(actix_web::error::ErrorInternalServerError("no observer"));
    };
    let guard = observer.in_flight.enter();
    let started = Instant::now();
    let id = RequestId(take_request_id(request.headers()));
    request.extensions_mut().insert(id.clone());
    let method = request.method().clone();
    // This is the route's template and never the path, because a path can hold a link's token.
    let matched = request.match_pattern();
    let name = matched.as_deref().unwrap_or("unmatched");
    let span = tracing::info_span!("request", otel.name = %format_args!("{method} {name}"), otel.kind = "server",
        http.request.method = %method, http.route = matched, peer.service = tracing::field::Empty, request.id = %id.0, trace_id = tracing::field::Empty,
        http.response.status_code = tracing::field::Empty, otel.status_code = tracing::field::Empty);
    telemetry::adopt_parent(&span, request.headers());
    if let Some(trace_id) = telemetry::trace_id(&span, request.headers()) {
        span.record("trace_id", trace_id.as_str());
    }

    let mut response = next.call(request).instrument(span.clone()).await?;

    let status = response.status().as_u16();
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    if observer.drain.is_draining() {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    let took = started.elapsed();
    let named = response.request().extensions().get::<Route>().map(|route| route.0);
    let route = matched.as_deref().or(named).unwrap_or("unmatched");
    observer.requests.record(&method, route, status, took);
    span.in_scope(|| tracing::info!(status, took_ms = took.as_secs_f64() * 1e3, "Answered"));
    Ok(response.map_body(|_, body| Keeping::new(body, guard)))
}

/// The id that [`observe`] gave a request.
pub fn request_id(request: &HttpRequest) -> Arc<str> {
    request.extensions().get::<RequestId>().map_or_else(|| "".into(), |id| Arc::clone(&id.0))
}

fn take_request_id(headers: &HeaderMap) -> Arc<str> {
    let well_formed = |id: &&str| {
        (1..=128).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    match headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok()).filter(well_formed) {
        Some(id) => id.into(),
        None => ensemble_types::ids::TokenId::generate().to_string().into(),
    }
}
