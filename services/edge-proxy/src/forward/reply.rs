//! Answers that the edge makes itself, and what it adds to all answers.

use actix_http::Response;
use actix_http::StatusCode;
use actix_http::header::{
    self, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    CROSS_ORIGIN_RESOURCE_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
    STRICT_TRANSPORT_SECURITY, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use ensemble_types::problem::{PROBLEM_JSON, Problem};

use super::body::{EdgeBody, Held};
use crate::domain::cors;
use crate::domain::refusal::METHODS;
use crate::limits::Standing;

pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A problem as an answer, with the headers that go with its code.
pub(super) fn problem(mut problem: Problem, request_id: &HeaderValue, held: Held) -> Response<EdgeBody> {
    problem.request_id = request_id.to_str().unwrap_or_default().to_owned();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // A problem is made of texts and numbers, which always can be written.
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::with_body(status, EdgeBody::whole(body, held));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    if let Some(seconds) = problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ensemble\""));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static(METHODS));
        }
        _ => {}
    }
    response
}

/// The answer to a preflight. `origin` is set when it may call.
pub(super) fn preflight(is_allowed: bool, held: Held) -> Response<EdgeBody> {
    let mut response = Response::with_body(StatusCode::OK, EdgeBody::whole("", held));
    if is_allowed {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(cors::ALLOWED_METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(cors::ALLOWED_HEADERS));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(cors::MAX_AGE));
    }
    response
}

pub(super) fn add_cors(headers: &mut HeaderMap, allowed: Option<HeaderValue>) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(cors::EXPOSED_HEADERS));
    }
}

pub(super) fn add_standing(headers: &mut HeaderMap, standing: &Standing) {
    if let (Some(limit), Some(policy)) = (standing.rate_limit(), standing.policy()) {
        headers.insert(RATE_LIMIT, limit);
        headers.insert(RATE_LIMIT_POLICY, policy);
    }
}

/// What makes an answer harmless in a browser, wherever the service did not say otherwise.
pub(super) fn add_safety(headers: &mut HeaderMap, is_https: bool) {
    const SAFE: [(HeaderName, HeaderValue); 4] = [
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
        (CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    for (name, value) in SAFE {
        if !headers.contains_key(&name) {
            headers.insert(name, value);
        }
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_https {
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    }
}

/// The token of `Authorization: Bearer <token>`, when there is one such field.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let (first, second) = (values.next()?, values.next());
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    (second.is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim_start())
}
