//! What happens to every request before a page or a service answers it, and to every answer after it.

use std::rc::Rc;
use std::time::Instant;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{ACCESS_CONTROL_REQUEST_METHOD, ALLOW, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY};
use actix_web::http::{ConnectionType, Method, StatusCode, Version};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, HttpResponse, web};
use ensemble_chassis::http::{RateLimit, compress, problem_response, request_id};
use ensemble_types::problem::{Code, Problem};

use crate::EdgeProxy;
use crate::connections::Connection;
use crate::domain::cors;
use crate::domain::request_rules::{self, Head, METHODS};
use crate::domain::route_table::Class;
use crate::request_context::RequestContext;

pub(crate) async fn around(request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse, actix_web::Error> {
    let Some(edge) = request.app_data::<web::Data<EdgeProxy>>().cloned() else { return next.call(request).await };
    let started = Instant::now();
    let context = RequestContext::of(&request, &edge);
    let origin = request.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok()).map(str::to_owned);
    request.extensions_mut().insert(context.clone());

    let (decided, quota) = decide(&request, &edge, &context);
    let mut response = match decided {
        Some(response) => request.into_response(response),
        None => next.call(request).await?,
    };

    let status = response.status();
    let refused = response.request().extensions().get::<RateLimit>().copied();
    // A service that refuses has a limit of its own. What is left of another one says nothing of it.
    let quota = refused.or(quota.filter(|_| status != StatusCode::TOO_MANY_REQUESTS));
    let headers = response.headers_mut();
    if let Some(quota) = &quota {
        set(headers, "ratelimit", &quota.rate_limit());
        set(headers, "ratelimit-policy", &quota.policy());
    }
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(allowed) = origin.as_deref().and_then(|origin| edge.config.cors.allow(origin)) {
        set(headers, "access-control-allow-origin", allowed);
        set(headers, "access-control-expose-headers", cors::EXPOSED_HEADERS);
    }
    add_safety(headers, &context);
    edge.metrics.record(context.route.map(|(_, upstream)| upstream), status, started.elapsed());
    Ok(compress(response, || edge.config.limiters.of(context.entrance).compressing.take(context.limit_key)))
}

/// The answer, where the edge need not ask anyone: to what it refuses, and to preflights.
fn decide(
    request: &ServiceRequest,
    edge: &EdgeProxy,
    context: &RequestContext,
) -> (Option<HttpResponse>, Option<RateLimit>) {
    if let Some(refused) = refuse(request, edge, context) {
        let mut response = problem_response(refused, &request_id(request.request()));
        if response.status().as_u16() == 405 {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
        }
        // The next request on this connection may begin elsewhere for another reader, or the connection is one too many.
        response.head_mut().set_connection_type(ConnectionType::Close);
        return (Some(response), None);
    }
    if let Some(origin) = preflight_origin(request) {
        let mut response = HttpResponse::Ok();
        if edge.config.cors.allow(origin).is_some() {
            response.insert_header(("access-control-allow-methods", cors::ALLOWED_METHODS));
            response.insert_header(("access-control-allow-headers", cors::ALLOWED_HEADERS));
            response.insert_header(("access-control-max-age", cors::MAX_AGE));
        }
        return (Some(response.finish()), None);
    }
    let quota = edge.config.limiters.of(context.entrance).count(context.class, context.limit_key, context.client);
    let refused = quota.filter(|quota| quota.refused_for.is_some()).map(|quota| quota.refuse(request));
    (refused.map(|problem| problem_response(problem, &request_id(request.request()))), quota)
}

fn refuse(request: &ServiceRequest, edge: &EdgeProxy, context: &RequestContext) -> Option<Problem> {
    let connection = request.conn_data::<Rc<Connection>>();
    if connection.is_some_and(|connection| connection.is_refused.get()) {
        return Some(Problem::new(Code::InvalidArgument, "A request before this one was refused. Connect again."));
    }
    if connection.is_some_and(|connection| !connection.is_admitted) {
        let most = edge.connections.of(context.entrance).limit();
        return Some(RateLimit::all_open("connections", most, "connections from one address").refuse(request));
    }
    let uri = request.uri();
    let fields: Vec<(&str, &[u8])> =
        request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let head = Head {
        method: request.method().as_str(),
        is_http_10: request.version() == Version::HTTP_10,
        authority: uri.authority().map(|authority| authority.as_str()),
        target: uri.path_and_query().map_or("", |target| target.as_str()),
        fields: &fields,
    };
    let is_clear = request_rules::check(&head, edge.config.head);
    let refusal = is_clear.and_then(|()| edge.entrances.check(context.entrance, request.headers())).err()?;
    if let Some(connection) = connection {
        connection.is_refused.set(true);
    }
    Some(refusal)
}

fn preflight_origin(request: &ServiceRequest) -> Option<&str> {
    let headers = request.headers();
    let asks = *request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    headers.get(ORIGIN).filter(|_| asks)?.to_str().ok()
}

/// What makes an answer harmless in a browser, wherever the service did not say otherwise.
fn add_safety(headers: &mut HeaderMap, context: &RequestContext) {
    for (name, value) in [
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
    ] {
        if !headers.contains_key(name) {
            set(headers, name, value);
        }
    }
    set(headers, "x-content-type-options", "nosniff");
    if context.class == Class::PublicLink {
        // The address is a secret, which search results would publish.
        set(headers, "x-robots-tag", "noindex");
    }
    if context.is_https {
        set(headers, "strict-transport-security", "max-age=31536000; includeSubDomains");
    }
}

fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
