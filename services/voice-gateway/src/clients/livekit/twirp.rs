//! One call of LiveKit's Twirp interface: protobuf in, protobuf out, errors as JSON (twitchtv.github.io/twirp, "Errors").

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use livekit_api::access_token::VideoGrants;
use prost::Message;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use tracing::Instrument;

use super::{ApiKey, Breaker, CallError};
use crate::metrics::VoiceMetrics;

pub(crate) struct Twirp {
    http: reqwest::Client,
    /// `http://host/base`, without a slash at the end.
    base: String,
    key: ApiKey,
    breaker: Breaker,
    key_is_good: AtomicBool,
    metrics: VoiceMetrics,
}

#[derive(Deserialize)]
struct ErrorBody {
    code: String,
    #[serde(default)]
    msg: String,
}

/// Of a message in an error, only so much is kept.
const MSG_MAX: usize = 200;

impl Twirp {
    /// `url` as LiveKit's own tools take it: `ws`, `wss`, `http` or `https`, with or without a path.
    pub(crate) fn new(http: reqwest::Client, url: &str, key: ApiKey, breaker: Breaker, metrics: VoiceMetrics) -> Self {
        let url = url.trim_end_matches('/');
        let base = match url.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => url.to_owned(),
        };
        Self { http, base, key, breaker, key_is_good: AtomicBool::new(true), metrics }
    }

    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub(super) fn key_is_good(&self) -> bool {
        self.key_is_good.load(Ordering::Relaxed)
    }

    pub(super) async fn call<Q: Message, R: Message + Default>(
        &self,
        service: &str,
        method: &'static str,
        request: &Q,
        grants: VideoGrants,
        budget: Duration,
    ) -> Result<R, CallError> {
        if self.breaker.is_open() {
            self.metrics.livekit_call(method, "open", Duration::ZERO);
            return Err(CallError::Open { retry_after: self.breaker.probe_every() });
        }
        self.call_and_count(service, method, request, grants, budget).await
    }

    /// The same, whether or not the breaker is open.
    pub(super) async fn probe<Q: Message>(
        &self,
        service: &str,
        method: &'static str,
        request: &Q,
        grants: VideoGrants,
        budget: Duration,
    ) -> Result<(), CallError> {
        self.call_and_count::<Q, livekit_protocol::ListRoomsResponse>(service, method, request, grants, budget)
            .await
            .map(drop)
    }

    async fn call_and_count<Q: Message, R: Message + Default>(
        &self,
        service: &str,
        method: &'static str,
        request: &Q,
        grants: VideoGrants,
        budget: Duration,
    ) -> Result<R, CallError> {
        let begun = Instant::now();
        let span = tracing::debug_span!(
            "livekit",
            otel.name = method,
            otel.kind = "client",
            rpc.system = "twirp",
            rpc.service = service,
            rpc.method = method,
            otel.status_code = tracing::field::Empty
        );
        let answer = self.exchange(service, method, request, grants, budget).instrument(span.clone()).await;
        if answer.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        let about_room = !matches!(method, "CreateRoom" | "DeleteRoom" | "ListRooms" | "ListParticipants");
        match &answer {
            Err(error) if error.is_outage(about_room) => self.breaker.failed(),
            _ => self.breaker.succeeded(),
        }
        match &answer {
            Ok(_) => self.key_is_good.store(true, Ordering::Relaxed),
            Err(error) if error.is_auth() => {
                if self.key_is_good.swap(false, Ordering::Relaxed) {
                    tracing::error!(method, "LiveKit refuses our key: check LIVEKIT_API_KEY and LIVEKIT_API_SECRET");
                }
            }
            Err(_) => {}
        }
        let result = answer.as_ref().map_or_else(CallError::kind, |_| "ok");
        self.metrics.livekit_call(method, result, begun.elapsed());
        answer
    }

    async fn exchange<Q: Message, R: Message + Default>(
        &self,
        service: &str,
        method: &str,
        request: &Q,
        grants: VideoGrants,
        budget: Duration,
    ) -> Result<R, CallError> {
        let token = self.key.for_call(grants)?;
        let sent = self
            .http
            .post(format!("{}/twirp/livekit.{service}/{method}", self.base))
            .bearer_auth(token)
            .header(CONTENT_TYPE, "application/protobuf")
            .timeout(budget)
            .body(request.encode_to_vec())
            .send()
            .await;
        let response = sent.map_err(transport)?;
        let status = response.status();
        let is_protobuf = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"application/protobuf"));
        let body = response.bytes().await.map_err(transport)?;
        if status.is_success() && is_protobuf {
            return R::decode(body).map_err(CallError::Protocol);
        }
        let status = status.as_u16();
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(error) => {
                Err(CallError::Twirp { status, code: error.code, msg: error.msg.chars().take(MSG_MAX).collect() })
            }
            Err(_) => Err(CallError::Http { status }),
        }
    }
}

fn transport(error: reqwest::Error) -> CallError {
    if error.is_timeout() { CallError::Timeout } else { CallError::Connect(error.without_url()) }
}
