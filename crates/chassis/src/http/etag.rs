//! Answers that a caller may have already: a strong `ETag` of the bytes, and 304 where `If-None-Match` names it (RFC 9110, section 13.1.2).
//!
//! Of the bytes and not of a version: what one caller gets of a thing can differ from what another one gets, and some of it changes without a
//! new version. So a 304 spares the way to the caller, and no work: the answer is read and written as JSON all the same, and a SHA-256 of
//! it comes on top.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// Part of a request whose answer gets a tag. It holds the tag of an answer that was made in pieces.
#[derive(Default)]
pub(crate) struct Tagged(Option<String>);

/// The tag of some bytes: 128 bits of their SHA-256.
pub fn etag_of(bytes: &[u8]) -> String {
    etag(Sha256::digest(bytes).as_slice())
}

/// The tag with this `etag` as the caller has it, when it has it. The comparison is weak: a proxy that packs an answer makes its tag weak.
pub fn known_etag(request: &HttpRequest, etag: &str) -> Option<String> {
    let lines = request.headers().get_all(IF_NONE_MATCH).filter_map(|line| line.to_str().ok());
    let known = lines.flat_map(|line| line.split(',')).map(str::trim);
    let matches = |tag: &&str| *tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
    let tag = known.into_iter().find(matches)?;
    Some(if tag == "*" { etag } else { tag }.to_owned())
}

/// Lets the pieces of the answer to this request be digested as they are made.
pub(crate) fn expect_tag(request: &HttpRequest) {
    request.extensions_mut().insert(Tagged::default());
}

/// Digests an answer in pieces, where its request needs it.
pub(super) fn digest<'a>(request: &HttpRequest, pieces: impl Iterator<Item = &'a Bytes>) {
    if let Some(tagged) = request.extensions_mut().get_mut::<Tagged>() {
        let digest = pieces.fold(Sha256::new(), |digest, piece| digest.chain_update(piece));
        tagged.0 = Some(etag(digest.finalize().as_slice()));
    }
}

/// Gives a 200 its tag, or makes it a 304, where its request needs it. An answer whose end is not known when it begins gets no tag.
pub(crate) fn tagged(request: &HttpRequest, response: HttpResponse) -> HttpResponse {
    let Some(Tagged(of_pieces)) = request.extensions_mut().remove::<Tagged>() else { return response };
    if response.status() != StatusCode::OK {
        return response;
    }
    let given = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let (mut response, body) = response.into_parts();
    let (etag, body) = match (given.or(of_pieces), body) {
        (Some(etag), body) => (etag, body),
        (None, body) => match body.try_into_bytes() {
            Ok(bytes) => (etag_of(&bytes), BoxBody::new(bytes)),
            Err(body) => return response.set_body(body),
        },
    };
    let Some(known) = known_etag(request, &etag) else {
        set(&mut response, &etag);
        return response.set_body(body);
    };
    let mut unchanged = HttpResponse::NotModified().finish();
    if let Some(cached) = response.headers().get(CACHE_CONTROL) {
        unchanged.headers_mut().insert(CACHE_CONTROL, cached.clone());
    }
    set(&mut unchanged, &known);
    unchanged
}

fn set<B>(response: &mut HttpResponse<B>, etag: &str) {
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, etag);
    }
}

fn etag(digest: &[u8]) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.get(..16).unwrap_or(digest)))
}
