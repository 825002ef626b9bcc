//! The heads of requests and answers on their way through.

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{CONNECTION, HOST, HeaderMap as ServerHeaders};
use ensemble_chassis::process::telemetry::{self, TRACEPARENT};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tracing::Span;

use crate::domain::header_policy::{ConnectionOptions, forward_to_client, forward_to_upstream};
use crate::request_context::RequestContext;

const NO_NEW_ACCOUNT: HeaderName = HeaderName::from_static("x-internal-no-new-account");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The fields of a request as a service sees them: the client's own, and what the edge says about it.
pub(super) fn request(
    request: &HttpRequest,
    context: &RequestContext,
    authority: &str,
    has_body: bool,
    may_make_account: bool,
) -> HeaderMap {
    let fields = request.headers();
    let options = options(fields);
    let mut headers = HeaderMap::with_capacity(fields.len() + 6);
    let parent = telemetry::traceparent_header(&Span::current());
    for (name, value) in fields {
        let is_replaced = parent.is_some() && *name == TRACEPARENT;
        if !is_replaced && forward_to_upstream(name.as_str(), &options) {
            append(&mut headers, name.as_str(), value.as_bytes());
        }
    }
    append(&mut headers, "host", authority.as_bytes());
    if !has_body && matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        // A method that may have a body says so when it has none (RFC 9110, section 8.6).
        headers.insert(reqwest::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if let Some(parent) = parent {
        append(&mut headers, TRACEPARENT.as_str(), parent.as_bytes());
    }
    if !may_make_account {
        headers.insert(NO_NEW_ACCOUNT, HeaderValue::from_static("1"));
    }
    if let Some(host) = fields.get(HOST) {
        append(&mut headers, X_FORWARDED_HOST.as_str(), host.as_bytes());
    }
    append(&mut headers, X_FORWARDED_FOR.as_str(), context.client.to_string().as_bytes());
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if context.is_https { "https" } else { "http" }));
    append(&mut headers, X_REQUEST_ID.as_str(), context.id.0.as_bytes());
    headers
}

/// The fields of a service's answer that reach the client.
pub(super) fn answer(fields: &HeaderMap) -> ServerHeaders {
    use actix_web::http::header::{HeaderName, HeaderValue};
    let named = fields.get_all(reqwest::header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let options = ConnectionOptions::read(named);
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

fn options(fields: &ServerHeaders) -> ConnectionOptions {
    ConnectionOptions::read(fields.get_all(CONNECTION).filter_map(|value| value.to_str().ok()))
}

/// The server and the client have header types of their own; a field that one has parsed is well-formed for the other.
fn append(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
        headers.append(name, value);
    }
}
