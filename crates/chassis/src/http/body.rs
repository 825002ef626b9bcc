//! Request bodies: bounded in size and time, strict JSON.

use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::time::Duration;

use actix_web::error::PayloadError;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{FromRequest, HttpMessage, HttpRequest, dev::Payload};
use bytes::{Bytes, BytesMut};
use ensemble_types::problem::{Code, Problem};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use super::budget::{BodyBudget, Reservation, Sender};
use super::large_work::{BodyLength, Heavy};
use super::members::{self, Known, Unknown};
use super::{ApiError, strict_json};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A sender that is silent for this long in the middle of a body loses its place.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

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
    /// The limits of the service that answers this request, and of the request's route.
    pub fn of(request: &HttpRequest) -> Self {
        let limits = request.app_data::<Self>().copied().unwrap_or_default();
        let of_route = request.extensions().get::<MaxBody>().map_or(usize::MAX, |of_route| of_route.0);
        Self { max_bytes: limits.max_bytes.min(of_route), ..limits }
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { max_bytes: 16 << 20, timeout: Duration::from_secs(15), min_bytes_per_second: 16 << 10 }
    }
}

/// The largest body of a route.
#[derive(Clone, Copy)]
pub(crate) struct MaxBody(pub(crate) usize);

/// A JSON body of a request, or the body of a 200 response.
pub struct Json<T>(pub T);

/// A JSON body that may be left out.
pub struct OptionalJson<T>(pub T);

/// A JSON body of a call that creates something, with its `Idempotency-Key` when the caller sent one.
pub struct IdempotentJson<T> {
    pub body: T,
    pub key: Option<IdempotencyKey>,
    /// SHA-256 of the body as the client sent it.
    pub digest: [u8; 32],
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

impl<T: DeserializeOwned + Send + 'static> FromRequest for Json<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move { Ok(Self(parse(&request, read_json(&request, payload).await?).await?)) })
    }
}

impl<T: DeserializeOwned + Send + 'static> DeferredJson<T> {
    pub async fn read(self) -> Result<T, Problem> {
        parse(&self.request, read_json(&self.request, self.payload).await?).await
    }
}

impl<T: 'static> FromRequest for DeferredJson<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(Ok(Self { request: request.clone(), payload: payload.take(), shape: PhantomData }))
    }
}

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest for OptionalJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let bytes = read_body(&request, payload).await?;
            if bytes.is_empty() {
                return Ok(Self(T::default()));
            }
            wants_json(&request)?;
            Ok(Self(parse(&request, bytes).await?))
        })
    }
}

impl<T: DeserializeOwned + Send + 'static> FromRequest for IdempotentJson<T> {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let name = idempotency_key(&request)?;
            let bytes = read_json(&request, payload).await?;
            let known = Known::of(&request);
            let read = move || {
                let (body, unknown) = read_known(&bytes, &known)?;
                let digest = Sha256::digest(&bytes).into();
                let key = name.map(|key| IdempotencyKey { key, body_hash: digest });
                Ok::<_, Problem>((Self { body, key, digest }, unknown))
            };
            let (read, unknown) = Heavy::of(&request).run(read).await??;
            members::remember(&request, &unknown);
            Ok(read)
        })
    }
}

/// Each chunk of a body costs some work, however short it is. This many may be short, plus one for each [`SHORT_PIECE`] bytes.
const MOST_PIECES: usize = 1_024;
const SHORT_PIECE: usize = 64;

/// The pieces of a body, within the limits.
pub struct BoundedBody {
    payload: Payload,
    limits: BodyLimits,
    announced: Option<usize>,
    received: usize,
    pieces: usize,
    /// Only the time spent waiting for the client counts, not the time of the reader.
    waited: Duration,
    /// Where the bytes are counted that stay in memory; a body that passes through is not counted.
    reservation: Option<Reservation>,
}

/// The reason why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("A body may have at most {0} bytes.")]
    TooLarge(usize),
    #[error("The body came too slowly. Send it faster, or in smaller parts.")]
    TooSlow,
    #[error("The body comes in too many small pieces. Send longer chunks, or the body with `Content-Length`.")]
    TooFine,
    #[error("The body could not be read to its end: {0}.")]
    Broken(#[source] PayloadError),
    #[error("The service holds as many request bodies as it may, in all or for you. Try again shortly.")]
    Spent,
}

impl BoundedBody {
    /// `payload` is the body of `request`. Fails when the announced length is too large.
    pub fn new(request: &HttpRequest, payload: Payload, limits: BodyLimits) -> Result<Self, BodyError> {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced = length.map(|length| length.parse().unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > limits.max_bytes) {
            return Err(BodyError::TooLarge(limits.max_bytes));
        }
        Ok(Self { payload, limits, announced, received: 0, pieces: 0, waited: Duration::ZERO, reservation: None })
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
        let longest = allowed.saturating_sub(self.waited).min(LONGEST_SILENCE);
        let piece = match timeout(longest, self.payload.next()).await {
            Err(_) => return Some(Err(BodyError::TooSlow)),
            Ok(None) => return None,
            Ok(Some(Err(error))) => return Some(Err(BodyError::Broken(error))),
            Ok(Some(Ok(piece))) => piece,
        };
        self.waited += started.elapsed();
        self.received += piece.len();
        self.pieces += 1;
        if self.pieces > MOST_PIECES + self.received / SHORT_PIECE {
            return Some(Err(BodyError::TooFine));
        }
        if self.received > self.limits.max_bytes {
            return Some(Err(BodyError::TooLarge(self.limits.max_bytes)));
        }
        if self.reservation.as_mut().is_some_and(|reservation| reservation.grow(piece.len()).is_err()) {
            return Some(Err(BodyError::Spent));
        }
        Some(Ok(piece))
    }

    /// The whole body.
    pub async fn read(mut self) -> Result<Bytes, BodyError> {
        self.read_whole().await
    }

    async fn read_whole(&mut self) -> Result<Bytes, BodyError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if self.announced == Some(piece.len()) {
                // A small body usually comes in one piece, which is not copied.
                return Ok(piece);
            }
            // The length is within the limit. The system gives memory for it as it is filled.
            if whole.is_empty() {
                whole.reserve(self.announced.unwrap_or(0));
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
            BodyError::Broken(_) | BodyError::TooFine => Code::InvalidArgument,
            BodyError::Spent => return Self::new(Code::Unavailable, error.to_string()).with_retry_after(2),
        };
        Self::new(code, error.to_string())
    }
}

/// Reads a whole body within the limits: 413 when it is too large, 408 when it comes too slowly, 400 when it ends early, 503
/// when the service holds too many. It counts for the budget until the request has been answered.
pub async fn read_body(request: &HttpRequest, payload: Payload) -> Result<Bytes, Problem> {
    let mut body = BoundedBody::new(request, payload, BodyLimits::of(request))?;
    body.reservation = request.app_data::<BodyBudget>().map(|budget| budget.reserve(Sender::of(request)));
    let bytes = body.read_whole().await?;
    request.extensions_mut().insert(BodyLength(bytes.len()));
    if let Some(reservation) = body.reservation {
        request.extensions_mut().insert(Held(reservation));
    }
    Ok(bytes)
}

/// Part of a request until it has been answered.
pub(super) struct Held(pub(super) Reservation);

/// Reads JSON into a type, a large one elsewhere than on this thread.
async fn parse<T: DeserializeOwned + Send + 'static>(request: &HttpRequest, bytes: Bytes) -> Result<T, Problem> {
    let known = Known::of(request);
    let (body, unknown) = Heavy::of(request).run(move || read_known(&bytes, &known)).await??;
    members::remember(request, &unknown);
    Ok(body)
}

/// The body, and the members of it that are ignored.
fn read_known<T: DeserializeOwned>(bytes: &[u8], known: &Known) -> Result<(T, Vec<Unknown>), Problem> {
    let unknown = strict_json::check(bytes, known.body())?;
    known.refuse(&unknown)?;
    Ok((strict_json::parse(bytes)?, unknown))
}

async fn read_json(request: &HttpRequest, payload: Payload) -> Result<Bytes, Problem> {
    wants_json(request)?;
    read_body(request, payload).await
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
