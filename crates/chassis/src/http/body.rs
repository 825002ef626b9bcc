//! Request bodies: bounded in size and time, strict JSON.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{FromRequest, HttpRequest, dev::Payload};
use bytes::{Bytes, BytesMut};
use ensemble_types::problem::{Code, Problem};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use super::{ApiError, strict_json};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The largest size and the lowest speed of a body. Every service has these limits in its application data.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    pub max_bytes: usize,
    /// The time that a body of any size may take.
    pub timeout: Duration,
    /// After that time, a body must have this many bytes for each second.
    pub min_bytes_per_second: u32,
}

impl BodyLimits {
    /// The limits of the service that answers this request.
    pub fn of(request: &HttpRequest) -> Self {
        request.app_data::<Self>().copied().unwrap_or_default()
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { max_bytes: 16 << 20, timeout: Duration::from_secs(15), min_bytes_per_second: 16 << 10 }
    }
}

/// A JSON body of a request, or the body of a 200 response.
pub struct Json<T>(pub T);

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

/// A JSON body of a call that creates something, with its `Idempotency-Key` when the caller sent one.
pub struct IdempotentJson<T> {
    pub body: T,
    pub key: Option<IdempotencyKey>,
}

/// A JSON body that the handler reads itself: for routes whose handlers check credentials first.
pub struct DeferredJson<T> {
    request: HttpRequest,
    payload: Payload,
    shape: PhantomData<T>,
}

/// The idempotency key of a request, and the digest of its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// SHA-256 of the body as the client sent it.
    pub body_hash: [u8; 32],
}

impl<T: DeserializeOwned + 'static> FromRequest for Json<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move { Ok(Self(strict_json::parse(&read_json(&request, payload).await?)?)) })
    }
}

impl<T: DeserializeOwned> DeferredJson<T> {
    pub async fn read(self) -> Result<T, Problem> {
        strict_json::parse(&read_json(&self.request, self.payload).await?)
    }
}

impl<T: 'static> FromRequest for DeferredJson<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(Ok(Self { request: request.clone(), payload: payload.take(), shape: PhantomData }))
    }
}

impl<T: DeserializeOwned + Default + 'static> FromRequest for OptionalJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let bytes = read_body(&request, payload, BodyLimits::of(&request)).await?;
            if bytes.is_empty() {
                return Ok(Self(T::default()));
            }
            wants_json(&request)?;
            Ok(Self(strict_json::parse(&bytes)?))
        })
    }
}

impl<T: DeserializeOwned + 'static> FromRequest for IdempotentJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let name = idempotency_key(&request)?;
            let bytes = read_json(&request, payload).await?;
            let body = strict_json::parse(&bytes)?;
            let key = name.map(|key| IdempotencyKey { key, body_hash: Sha256::digest(&bytes).into() });
            Ok(Self { body, key })
        })
    }
}

/// The pieces of a body, within the limits.
pub struct BoundedBody {
    payload: Payload,
    limits: BodyLimits,
    announced: Option<usize>,
    received: usize,
    /// Only the time spent waiting for the client counts, not the time of the reader.
    waited: Duration,
}

/// The reason why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("A body may have at most {0} bytes.")]
    TooLarge(usize),
    #[error("The body came too slowly. Send it faster, or in smaller parts.")]
    TooSlow,
    #[error("The body could not be read to its end: {0}.")]
    Broken(#[source] PayloadError),
}

impl BoundedBody {
    /// `payload` is the body of `request`. Fails when the announced length is too large.
    pub fn new(request: &HttpRequest, payload: Payload, limits: BodyLimits) -> Result<Self, BodyError> {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = length.map(|length| length.parse().unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > limits.max_bytes) {
            return Err(BodyError::TooLarge(limits.max_bytes));
        }
        Ok(Self { payload, limits, announced, received: 0, waited: Duration::ZERO })
    }

    /// The value of `Content-Length`.
    pub fn announced(&self) -> Option<usize> {
        self.announced
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        let earned = self.received as u64 * 1_000 / u64::from(self.limits.min_bytes_per_second.max(1));
        let allowed = self.limits.timeout + Duration::from_millis(earned);
        let started = Instant::now();
        let piece = match timeout(allowed.saturating_sub(self.waited), self.payload.next()).await {
            Err(_) => return Some(Err(BodyError::TooSlow)),
            Ok(None) => return None,
            Ok(Some(Err(error))) => return Some(Err(BodyError::Broken(error))),
            Ok(Some(Ok(piece))) => piece,
        };
        self.waited += started.elapsed();
        self.received += piece.len();
        if self.received > self.limits.max_bytes {
            return Some(Err(BodyError::TooLarge(self.limits.max_bytes)));
        }
        Some(Ok(piece))
    }

    /// The whole body.
    pub async fn read(mut self) -> Result<Bytes, BodyError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if self.announced == Some(piece.len()) {
                // A small body usually comes in one piece, which is not copied.
                return Ok(piece);
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TooLarge(_) => Code::PayloadTooLarge,
            BodyError::TooSlow => Code::RequestTimeout,
            BodyError::Broken(_) => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

/// Reads a whole body within the limits: 413 when it is too large, 408 when it comes too slowly, 400 when it ends early.
pub async fn read_body(request: &HttpRequest, payload: Payload, limits: BodyLimits) -> Result<Bytes, Problem> {
    Ok(BoundedBody::new(request, payload, limits)?.read().await?)
}

async fn read_json(request: &HttpRequest, payload: Payload) -> Result<Bytes, Problem> {
    wants_json(request)?;
    read_body(request, payload, BodyLimits::of(request)).await
}

fn wants_json(request: &HttpRequest) -> Result<(), Problem> {
    let kind = only(request, &CONTENT_TYPE)?.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !is_json(kind) {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "Send the body as JSON, with `Content-Type: application/json`.",
        ));
    }
    // Bodies are never decompressed, because a small body could become a very large one.
    match only(request, &CONTENT_ENCODING)?.map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(()),
        Some(_) => Err(Problem::new(Code::UnsupportedMediaType, "Send the body without `Content-Encoding`.")),
    }
}

/// JSON has one encoding, UTF-8 (RFC 8259, section 8.1), so other charsets are refused.
fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let mut charsets = parts
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
        .map(|(_, value)| value.trim().trim_matches('"'));
    essence.eq_ignore_ascii_case("application/json") && charsets.all(|charset| charset.eq_ignore_ascii_case("utf-8"))
}

/// A header field that may occur once. With two, one reader could use the first and another the last.
pub fn only<'a>(request: &'a HttpRequest, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = request.headers().get_all(name);
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::new(Code::InvalidArgument, format!("Send the header `{name}` once.")));
    }
    Ok(value)
}

fn idempotency_key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let Some(value) = only(request, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (16..=128).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            Err(Problem::new(Code::InvalidArgument, "`Idempotency-Key` must be 16 to 128 printable ASCII characters."))
        }
    }
}
