//! What the edge adds to all answers.

use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_SECURITY_POLICY,
    CROSS_ORIGIN_RESOURCE_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};

use crate::domain::cors;
use crate::domain::route_table::Class;
use crate::limits::QuotaStatus;
use crate::request_context::RequestContext;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// The answer to a preflight of a page that may call.
pub(crate) fn add_preflight(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(cors::ALLOWED_METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(cors::ALLOWED_HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(cors::MAX_AGE));
}

pub(crate) fn add_cors(headers: &mut HeaderMap, allowed: Option<&str>) {
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = allowed.and_then(|origin| HeaderValue::from_str(origin).ok()) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(cors::EXPOSED_HEADERS));
    }
}

pub(crate) fn add_quota(headers: &mut HeaderMap, quota: &QuotaStatus) {
    if let (Some(limit), Some(policy)) = (quota.rate_limit(), quota.policy()) {
        headers.insert(RATE_LIMIT, limit);
        headers.insert(RATE_LIMIT_POLICY, policy);
    }
}

/// What makes an answer harmless in a browser, wherever the service did not say otherwise.
pub(crate) fn add_safety(headers: &mut HeaderMap, context: &RequestContext) {
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
    if context.class == Class::PublicLink {
        // The address is a secret, which search results would publish.
        headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
    }
    if context.is_https {
        headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    }
}
