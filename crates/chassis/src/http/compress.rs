//! Compresses answers where the request allows it: JSON of more than 1 KiB. The edge calls this, and no service, so that it happens once.
//!
//! What says `no-transform` (RFC 9111, section 5.2.2.6) passes as it is: streams, and what must not be compressed because a secret stands in it.
//! The route says which that is ([`crate::routes::RowBuilder::secret`]).

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use actix_web::HttpRequest;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::http::header::{
    AcceptEncoding, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ContentEncoding, ETAG, Encoding, Header, HeaderMap,
    HeaderName, HeaderValue, VARY,
};
use actix_web::http::{Method, StatusCode, Version};
use brotli::CompressorWriter;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{absent, etag_of};

/// A shorter answer gains less than the fields around it cost.
const SHORT: u64 = 1 << 10;

const GZIP_LEVEL: u32 = 4;
const BROTLI_QUALITY: u32 = 4;
/// How far back brotli looks: 256 KiB, which bounds its memory.
const BROTLI_WINDOW: u32 = 18;

/// The answer, compressed if it may be and the client takes it so. `place` counts it until its last byte has gone, for it holds up to 1 MiB;
/// an answer for which there is no place goes out as it is.
pub fn compress<P: Unpin + 'static>(
    mut response: ServiceResponse<BoxBody>,
    place: impl FnOnce() -> Option<P>,
) -> ServiceResponse<BoxBody> {
    let size = response.response().body().size();
    if response.status() == StatusCode::NOT_MODIFIED {
        vary(response.headers_mut());
        return response;
    }
    if !may_be_compressed(response.status(), response.headers(), size) {
        return response;
    }
    vary(response.headers_mut());
    let Some(coding) = coding_for(response.request()) else { return response };
    let constant = response.response().extensions().get::<&'static Constant>().copied();
    let place = if constant.is_some() { None } else { place() };
    if constant.is_none() && place.is_none() {
        return response;
    }
    let is_head = *response.request().method() == Method::HEAD;
    let headers = response.headers_mut();
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    weaken(headers);
    response.map_body(|_, body| {
        if is_head {
            return absent(BodySize::Stream);
        }
        if let Some(constant) = constant {
            return BoxBody::new(constant.compressed(coding));
        }
        BoxBody::new(Compressed { body, left: Bytes::new(), encoder: Some(Encoder::new(coding)), _place: place })
    })
}

/// An answer that is the same for everyone. Each coding of it is made once and kept. Its handler puts a reference to it into the extensions
/// of the answer.
pub struct Constant {
    plain: Bytes,
    tag: String,
    gzip: OnceLock<Bytes>,
    brotli: OnceLock<Bytes>,
}

impl Constant {
    pub fn new(plain: Bytes) -> Self {
        let tag = etag_of(&plain);
        Self { plain, tag, gzip: OnceLock::new(), brotli: OnceLock::new() }
    }

    pub fn plain(&self) -> Bytes {
        self.plain.clone()
    }

    /// The strong entity tag of the plain bytes, with its quotes.
    pub fn etag(&self) -> &str {
        &self.tag
    }

    fn compressed(&self, coding: ContentEncoding) -> Bytes {
        let kept = if coding == ContentEncoding::Brotli { &self.brotli } else { &self.gzip };
        let make = || {
            let mut encoder = Encoder::new(coding);
            let begun = encoder.compress(&self.plain)?;
            Ok::<_, io::Error>([begun, encoder.finish()?].concat().into())
        };
        // Writing into memory does not fail.
        kept.get_or_init(|| make().unwrap_or_default()).clone()
    }
}

fn may_be_compressed(status: StatusCode, headers: &HeaderMap, size: BodySize) -> bool {
    let has = |name, text: &str| {
        headers.get_all(name).any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains(text)))
    };
    let is_long = match size {
        BodySize::None => false,
        BodySize::Sized(length) => length > SHORT,
        BodySize::Stream => true,
    };
    let is_json = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    // A part of an answer (206) is a part of its bytes.
    let is_whole = status.is_success() && status != StatusCode::PARTIAL_CONTENT;
    let must_stay = headers.contains_key(CONTENT_ENCODING)
        || has(CACHE_CONTROL, "no-transform")
        || has(HeaderName::from_static("x-accel-buffering"), "no");
    is_long && is_json && is_whole && !must_stay
}

/// What the client prefers of brotli, gzip and nothing.
fn coding_for(request: &HttpRequest) -> Option<ContentEncoding> {
    if request.version() == Version::HTTP_10 {
        // It has no chunks, and the length is not known before the end.
        return None;
    }
    let supported = [Encoding::brotli(), Encoding::gzip(), Encoding::identity()];
    match AcceptEncoding::parse(request).ok()?.negotiate(supported.iter())? {
        Encoding::Known(coding @ (ContentEncoding::Brotli | ContentEncoding::Gzip)) => Some(coding),
        _ => None,
    }
}

fn vary(headers: &mut HeaderMap) {
    let is_said =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("accept-encoding"));
    if !headers.get_all(VARY).any(is_said) {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// A strong tag is one of the bytes as they are sent. `If-None-Match` compares weak ones as well.
fn weaken(headers: &mut HeaderMap) {
    let strong = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).filter(|etag| etag.starts_with('"'));
    if let Some(weak) = strong.and_then(|etag| HeaderValue::from_str(&format!("W/{etag}")).ok()) {
        headers.insert(ETAG, weak);
    }
}

struct Compressed<P> {
    body: BoxBody,
    /// What has come and is not compressed yet.
    left: Bytes,
    /// `None` at the end.
    encoder: Option<Encoder>,
    _place: P,
}

/// How much is compressed before what came of it goes out.
const PIECE: usize = 32 << 10;

impl<P: Unpin> MessageBody for Compressed<P> {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(None) };
            if this.left.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_next(cx)) {
                    Some(piece) => this.left = piece?,
                    None => {
                        let rest = this.encoder.take().map(Encoder::finish).transpose()?;
                        return Poll::Ready(rest.filter(|rest| !rest.is_empty()).map(Ok));
                    }
                }
            }
            let piece = this.left.split_to(this.left.len().min(PIECE));
            let out = encoder.compress(&piece)?;
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(out)));
            }
        }
    }
}

enum Encoder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
}

impl Encoder {
    fn new(coding: ContentEncoding) -> Self {
        if coding == ContentEncoding::Brotli {
            return Self::Brotli(Box::new(CompressorWriter::new(Vec::new(), 4 << 10, BROTLI_QUALITY, BROTLI_WINDOW)));
        }
        Self::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL))))
    }

    /// What comes out while this goes in.
    fn compress(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        let out = match self {
            Self::Gzip(encoder) => {
                encoder.write_all(piece)?;
                encoder.get_mut()
            }
            Self::Brotli(encoder) => {
                encoder.write_all(piece)?;
                encoder.get_mut()
            }
        };
        Ok(std::mem::take(out).into())
    }

    fn finish(self) -> io::Result<Bytes> {
        Ok(match self {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Brotli(encoder) => encoder.into_inner(),
        }
        .into())
    }
}
