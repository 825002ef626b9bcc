//! The internal listener: health, metrics and the calls of peers. The edge never reaches it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, CONTENT_TYPE};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tracing::Instrument;

use super::drain::Drain;
use super::telemetry;
use crate::http::InFlight;
use crate::metrics::Metrics;
use crate::service::{RpcCall, RpcMount, RpcStatus};

type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

pub(super) struct InternalListener {
    pub(super) drain: Drain,
    pub(super) metrics: Metrics,
    pub(super) ready: Readiness,
    pub(super) rpc: HashMap<String, RpcCall>,
    /// The drain also waits for calls of peers.
    pub(super) in_flight: InFlight,
    /// SHA-256 of the tokens that are valid now: comparing digests takes the same time for any guess.
    pub(super) tokens: Vec<[u8; 32]>,
}

impl InternalListener {
    pub(super) fn rpc_by_path(mounts: Vec<RpcMount>) -> HashMap<String, RpcCall> {
        mounts.into_iter().map(|mount| (mount.path, mount.call)).collect()
    }

    pub(super) fn digests<'a>(tokens: impl IntoIterator<Item = &'a SecretString>) -> Vec<[u8; 32]> {
        tokens.into_iter().map(|token| Sha256::digest(token.expose_secret()).into()).collect()
    }

    fn admits(&self, request: &HttpRequest) -> bool {
        let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = sent.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.tokens.iter().fold(false, |found, known| bool::from(known.ct_eq(&digest)) | found)
    }
}

pub(super) fn configure(app: &mut web::ServiceConfig) {
    app.app_data(web::PayloadConfig::new(4 << 20))
        .route("/healthz", web::get().to(alive))
        .route("/readyz", web::get().to(readiness))
        .route("/metrics", web::get().to(metrics))
        .route("/rpc/{service}/{method}", web::post().to(rpc));
}

async fn alive() -> &'static str {
    "alive\n"
}

async fn readiness(state: web::Data<InternalListener>) -> HttpResponse {
    if state.drain.is_draining() {
        return HttpResponse::ServiceUnavailable().body("draining\n");
    }
    match (state.ready)().await {
        Ok(()) => HttpResponse::Ok().body("ready\n"),
        Err(why) => HttpResponse::ServiceUnavailable().body(format!("{why}\n")),
    }
}

async fn metrics(state: web::Data<InternalListener>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(state.metrics.render())
}

async fn rpc(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    body: Bytes,
    state: web::Data<InternalListener>,
) -> HttpResponse {
    if !state.admits(&request) {
        return failure(&RpcStatus {
            code: "unauthenticated",
            message: "INTERNAL_TOKEN is missing or wrong".to_owned(),
        });
    }
    let (service, method) = path.into_inner();
    let name = format!("{service}/{method}");
    let Some(call) = state.rpc.get(&name) else {
        return failure(&RpcStatus { code: "bad_route", message: format!("no method {name}") });
    };
    let _guard = state.in_flight.enter();
    let span = tracing::info_span!("rpc", otel.name = %name, otel.kind = "server", rpc.system = "twirp",
        rpc.service = %service, rpc.method = %method, trace_id = tracing::field::Empty, otel.status_code = tracing::field::Empty);
    telemetry::adopt_parent(&span, request.headers());
    if let Some(trace_id) = telemetry::trace_id(&span, request.headers()) {
        span.record("trace_id", trace_id.as_str());
    }
    let started = Instant::now();
    let called = call(body).instrument(span.clone()).await;
    let status = called.as_ref().map_or_else(|status| http_status(status.code), |_| 200);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    state.metrics.requests().record(&Method::POST, &name, status, started.elapsed());
    match called {
        Ok(answer) => HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/protobuf")).body(answer),
        Err(status) => failure(&status),
    }
}

/// Errors as Twirp writes them: JSON with a code, also for protobuf calls.
fn failure(status: &RpcStatus) -> HttpResponse {
    let code = http_status(status.code);
    let code =
        actix_web::http::StatusCode::from_u16(code).unwrap_or(actix_web::http::StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(code).json(serde_json::json!({ "code": status.code, "msg": status.message }))
}

fn http_status(code: &str) -> u16 {
    match code {
        "unauthenticated" => 401,
        "bad_route" | "not_found" => 404,
        "invalid_argument" => 400,
        "unavailable" => 503,
        _ => 500,
    }
}
