//! Writes the head of a request to a service, straight from the head of the client's request.

use std::io::Write;
use std::net::IpAddr;

use actix_http::RequestHead;
use actix_http::header::HeaderValue;
use bytes::{BufMut, BytesMut};

use ensemble_chassis::process::telemetry::TRACEPARENT;

use crate::domain::head_scanner::Framing;
use crate::domain::hop_headers::{Named, goes_up};

/// What the edge says about a request, beside what its client says.
pub struct Envelope<'a> {
    /// The service's own host and port.
    pub host: &'a str,
    pub client: IpAddr,
    /// `http` or `https`: how the client came.
    pub scheme: &'a str,
    pub request_id: &'a HeaderValue,
    pub framing: Framing,
    /// The edge's own span, where spans are made; else the caller's goes on.
    pub traceparent: Option<HeaderValue>,
    /// Identity must not make an account for this sign-in: its address has made enough.
    pub no_new_account: bool,
}

/// Appends the head to `out`.
pub fn write(out: &mut BytesMut, head: &RequestHead, envelope: &Envelope<'_>) {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    out.reserve(512 + target.len());
    put(
        out,
        &[head.method.as_str().as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\nhost: ", envelope.host.as_bytes()],
    );
    let named = Named::of(&head.headers);
    for (name, value) in &head.headers {
        let is_replaced = envelope.traceparent.is_some() && *name == TRACEPARENT;
        if !is_replaced && goes_up(name, &named) {
            put(out, &[b"\r\n", name.as_str().as_bytes(), b": ", value.as_bytes()]);
        }
    }
    if let Some(host) = head.headers.get(actix_http::header::HOST) {
        put(out, &[b"\r\nx-forwarded-host: ", host.as_bytes()]);
    }
    if let Some(traceparent) = &envelope.traceparent {
        put(out, &[b"\r\ntraceparent: ", traceparent.as_bytes()]);
    }
    if envelope.no_new_account {
        put(out, &[b"\r\nx-internal-no-new-account: 1"]);
    }
    put(out, &[b"\r\nx-forwarded-proto: ", envelope.scheme.as_bytes()]);
    put(out, &[b"\r\nx-request-id: ", envelope.request_id.as_bytes()]);
    // Writing to a growing buffer cannot fail.
    let _ = write!(out.writer(), "\r\nx-forwarded-for: {}", envelope.client);
    let _ = match envelope.framing {
        Framing::None if needs_length(head) => out.writer().write_all(b"\r\ncontent-length: 0"),
        Framing::None => Ok(()),
        Framing::Length(length) => write!(out.writer(), "\r\ncontent-length: {length}"),
        Framing::Chunked => out.writer().write_all(b"\r\ntransfer-encoding: chunked"),
    };
    out.put_slice(b"\r\n\r\n");
}

/// A method that may have a body says so when it has none (RFC 9110, section 8.6).
fn needs_length(head: &RequestHead) -> bool {
    use actix_http::Method;
    matches!(head.method, Method::POST | Method::PUT | Method::PATCH)
}

fn put(out: &mut BytesMut, parts: &[&[u8]]) {
    for part in parts {
        out.put_slice(part);
    }
}
