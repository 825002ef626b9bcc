//! The calling side: one request, one answer, a deadline.

use std::time::Duration;

use bytes::Bytes;
use ensemble_chassis::ServiceContext;
use ensemble_chassis::process::telemetry::traceparent;
use prost::Message;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::timeout;
use tracing::Instrument;

use crate::{Peer, RpcError};

const PROTOBUF: &str = "application/protobuf";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The way to one peer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Channel {
    http: reqwest::Client,
    url: String,
    token: SecretString,
    deadline: Duration,
}

/// Whether a call may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// It changes nothing: sent again once when it did not arrive, or when the peer was not available.
    Read,
    Write,
}

/// An error as Twirp writes it.
#[derive(Deserialize)]
struct WireError {
    code: String,
    #[serde(default)]
    msg: String,
}

impl Channel {
    pub fn new(context: &ServiceContext, peer: &Peer) -> Self {
        Self::with(context.http.clone(), context.internal_token.clone(), peer)
    }

    /// For programs that are not services.
    pub fn with(http: reqwest::Client, token: SecretString, peer: &Peer) -> Self {
        Self { http, url: peer.url.clone(), token, deadline: peer.deadline }
    }

    /// For the generated clients.
    pub async fn call<Q: Message, A: Message + Default>(
        &self,
        method: &'static str,
        kind: CallKind,
        request: Q,
    ) -> Result<A, RpcError> {
        let body = Bytes::from(request.encode_to_vec());
        let span = tracing::debug_span!(
            "call",
            otel.name = method,
            otel.kind = "client",
            rpc.system = "twirp",
            rpc.method = method,
            otel.status_code = tracing::field::Empty
        );
        let answer = timeout(self.deadline, self.repeat(method, kind, body)).instrument(span.clone()).await;
        let answer = answer.unwrap_or_else(|_| Err(RpcError::Deadline(method.to_owned())));
        if matches!(answer, Err(RpcError::Unavailable(_) | RpcError::Deadline(_) | RpcError::Internal(_))) {
            span.record("otel.status_code", "ERROR");
        }
        let bytes = answer?;
        A::decode(bytes).map_err(|error| RpcError::Internal(format!("{method}: the answer is not readable: {error}")))
    }

    async fn repeat(&self, method: &'static str, kind: CallKind, body: Bytes) -> Result<Bytes, RpcError> {
        match self.send(method, body.clone()).await {
            Err(RpcError::Unavailable(reason)) if kind == CallKind::Read => {
                tracing::debug!(method, %reason, "Asking a peer again");
                self.send(method, body).await
            }
            answer => answer,
        }
    }

    async fn send(&self, method: &'static str, body: Bytes) -> Result<Bytes, RpcError> {
        let lost = |error: reqwest::Error| RpcError::Unavailable(format!("{method}: {}", with_causes(&error)));
        let mut request = self
            .http
            .post(format!("{}/rpc/{method}", self.url))
            .bearer_auth(self.token.expose_secret())
            .header(CONTENT_TYPE, PROTOBUF)
            .body(body);
        if let Some(parent) = traceparent() {
            request = request.header(TRACEPARENT, parent);
        }
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(lost)?;
        if status == StatusCode::OK {
            return Ok(bytes);
        }
        Err(match serde_json::from_slice::<WireError>(&bytes) {
            Ok(error) => RpcError::from_wire(&error.code, format!("{method}: {}", error.msg)),
            Err(_) if status == StatusCode::SERVICE_UNAVAILABLE => RpcError::Unavailable(format!("{method}: {status}")),
            Err(_) => RpcError::Internal(format!("{method}: {status}")),
        })
    }
}

/// reqwest says the cause of a failure only in the sources of its error. Its addresses hold no secrets here.
fn with_causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
