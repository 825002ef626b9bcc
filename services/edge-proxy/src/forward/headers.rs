//! The heads of requests and answers on their way through.

use actix_web::HttpRequest;
use actix_web::http::header::{CONNECTION, HOST, HeaderMap as ServerHeaders};
use ensemble_chassis::entrance::{ENTRANCE, Entrance};
use ensemble_chassis::http::{RateLimit, request_id};
use ensemble_chassis::process::telemetry::{self, TRACEPARENT};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use tracing::Span;

use crate::domain::header_policy::{connection_options, forward_to_client, forward_to_upstream};
use crate::request_context::RequestContext;

/// The fields of a request as a service sees them: the client's own, and what the edge says about it.
pub(super) fn request(
    request: &HttpRequest,
    context: &RequestContext,
    authority: &str,
    length: Option<usize>,
    no_new_account: Option<RateLimit>,
) -> HeaderMap {
    let fields = request.headers();
    let options = connection_options(fields.get_all(CONNECTION).filter_map(|value| value.to_str().ok()));
    let mut headers = HeaderMap::with_capacity(fields.len() + 6);
    let parent = telemetry::traceparent_header(&Span::current());
    for (name, value) in fields {
        let is_replaced = parent.is_some() && *name == TRACEPARENT;
        if !is_replaced && forward_to_upstream(name.as_str(), &options) {
            append(&mut headers, name.as_str(), value.as_bytes());
        }
    }
    append(&mut headers, "host", authority.as_bytes());
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Some(parent) = parent {
        append(&mut headers, TRACEPARENT.as_str(), parent.as_bytes());
    }
    if let Some(wait) = no_new_account.and_then(|limit| limit.refused_for) {
        // The seconds until the address may make the next one.
        append(&mut headers, "x-internal-no-new-account", (wait.as_secs() + 1).to_string().as_bytes());
    }
    if let Some(host) = fields.get(HOST) {
        append(&mut headers, "x-forwarded-host", host.as_bytes());
    }
    match context.entrance {
        Entrance::Proxy => append(&mut headers, ENTRANCE, b"proxy"),
        _ if context.is_local => append(&mut headers, ENTRANCE, b"local"),
        _ => {}
    }
    append(&mut headers, "x-forwarded-for", context.client.to_string().as_bytes());
    append(&mut headers, "x-forwarded-proto", if context.is_https { &b"https"[..] } else { b"http" });
    append(&mut headers, "x-request-id", request_id(request).as_bytes());
    headers
}

/// The fields of a service's answer that reach the client.
pub(super) fn answer(fields: &HeaderMap) -> ServerHeaders {
    use actix_web::http::header::{HeaderName, HeaderValue};
    let named = fields.get_all(hyper::header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let options = connection_options(named);
    let mut headers = ServerHeaders::with_capacity(fields.len());
    for (name, value) in fields {
        if forward_to_client(name.as_str(), &options)
            && let Ok(name) = HeaderName::from_bytes(name.as_str().as_bytes())
            && let Ok(value) = HeaderValue::from_bytes(value.as_bytes())
        {
            headers.append(name, value);
        }
    }
    headers
}

/// The server and the client have header types of their own; a field that one has parsed is well-formed for the other.
fn append(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}
