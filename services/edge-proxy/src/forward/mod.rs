//! From a request that no page of the edge answers to the answer of the service that its path belongs to.

mod body;
mod headers;

use actix_web::body::BodySize;
use actix_web::http::header::TRANSFER_ENCODING;
use actix_web::http::{ConnectionType, Method, StatusCode, Version};
use actix_web::web::Payload;
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use ensemble_chassis::State;
use ensemble_chassis::http::{BodyLimits, BoundedBody, RateLimit, Route, absent, problem_response, request_id};
use ensemble_types::problem::{Code, Problem};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};

use self::body::{End, Live, relay};
use crate::EdgeProxy;
use crate::domain::route_table::{Class, Upstream};
use crate::limits::LimitKey;
use crate::request_context::RequestContext;
use crate::upstream::failure::Failure;
use crate::upstream::send::Outgoing;
use crate::upstream::upload::Upload;
use ensemble_chassis::shares::Share;

const NEW_ACCOUNT: &str = "x-internal-new-account";
/// How services mark an answer that has no foreseeable end and must not be held back.
const ACCEL_BUFFERING: &str = "x-accel-buffering";

/// Answers what no page of the edge does.
pub(crate) async fn forward(edge: State<EdgeProxy>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let id = request_id(&request);
    let context = request.extensions().get::<RequestContext>().cloned();
    let Some((context, (prefix, upstream))) = context.and_then(|context| Some((context.clone(), context.route?)))
    else {
        if let Some(answer) = crate::pages::web::other(&edge, &request) {
            return answer;
        }
        return problem_response(Problem::no_such_path(), &id);
    };
    tracing::Span::current().record("peer.service", upstream.name());
    // A path can hold a link's token, so it is named by its prefix.
    Route(prefix).name(&request);
    match exchange(&edge, &request, &context, payload, upstream).await {
        Ok(response) => response,
        Err(failure) => {
            failure.log(upstream);
            let is_clients = matches!(failure, Failure::Client(_));
            let mut response = problem_response(failure.into_problem(upstream), &id);
            if is_clients {
                // The rest of the body may still come.
                response.head_mut().set_connection_type(ConnectionType::Close);
            }
            response
        }
    }
}

async fn exchange(
    edge: &EdgeProxy,
    request: &HttpRequest,
    context: &RequestContext,
    payload: Payload,
    upstream: Upstream,
) -> Result<HttpResponse, Failure> {
    let permit = if context.is_long_poll { Some(permit(edge, request, context)?) } else { None };
    let body = BoundedBody::new(request, payload.into_inner(), BodyLimits::of(request))?;
    let is_coded = request.headers().contains_key(TRANSFER_ENCODING);
    let has_body = body.announced().map_or(is_coded, |length| length > 0);
    // A method that may have a body says so when it has none (RFC 9110, section 8.6).
    let may_have_body = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    let length = if has_body { body.announced() } else { may_have_body.then_some(0) };
    let limiter = edge.config.limiters.of(context.entrance);
    let place = || {
        limiter.uploads.take(context.limit_key).ok_or_else(|| {
            let detail = "Too many large bodies are on their way, in all or of yours. Nothing was done; try again.";
            Problem::new(Code::Unavailable, detail).with_retry_after(2)
        })
    };
    let upload = Upload::begin(body, has_body, place).await?;
    let accounts = &limiter.new_accounts;
    let is_sign_in = context.class == Class::SignIn && *request.method() == Method::POST;
    let is_counted = is_sign_in && !(edge.config.only_here && context.is_local);
    let place = is_counted.then(|| accounts.take(context.client));
    let no_new_account = place.and_then(Result::err);
    let (replicas, host) = (edge.replicas.of(upstream), edge.config.upstreams.of(upstream).host());
    let outgoing = Outgoing {
        target: request.uri().path_and_query().map_or("/", |target| target.as_str()),
        headers: headers::request(request, context, host, length, no_new_account),
        is_repeatable: !has_body && context.is_repeatable,
        is_long_poll: context.is_long_poll,
        method: hyper::Method::from_bytes(request.method().as_str().as_bytes()).unwrap_or_default(),
        upload,
    };
    let answer = outgoing.send(edge, replicas).await;
    // The place stays taken where the client has gone meanwhile, because an account may have been made.
    let has_made_one = answer.as_ref().is_ok_and(|answer| answer.headers().contains_key(NEW_ACCOUNT));
    if place == Some(Ok(())) && !has_made_one {
        accounts.give_back(context.client);
    }
    let answer = answer?;
    if let Some(limit) = no_new_account.filter(|_| answer.status() == hyper::StatusCode::TOO_MANY_REQUESTS) {
        request.extensions_mut().insert(limit);
    }
    pass_on(edge, request, context, answer, permit)
}

/// Turns a service's answer into the client's.
fn pass_on(
    edge: &EdgeProxy,
    request: &HttpRequest,
    context: &RequestContext,
    answer: Response<Incoming>,
    permit: Option<Share<LimitKey>>,
) -> Result<HttpResponse, Failure> {
    let fields = answer.headers();
    let length = fields.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_events = fields.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let is_live =
        is_events || (length.is_none() && fields.get(ACCEL_BUFFERING).is_some_and(|value| value.as_bytes() == b"no"));
    let permit = match permit {
        None if is_events => Some(self::permit(edge, request, context)?),
        held => held,
    };
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut response = HttpResponse::new(status);
    *response.headers_mut() = headers::answer(fields);
    let is_head = *request.method() == Method::HEAD;
    if is_head || matches!(status.as_u16(), 204 | 304) {
        // The length of a body that is not there belongs to HEAD alone.
        let size = length.filter(|_| is_head).map_or(BodySize::None, BodySize::Sized);
        return Ok(response.set_body(absent(size)));
    }
    if length.is_none() && request.version() == Version::HTTP_10 {
        // HTTP/1.0 has no chunks (RFC 9112, section 7.1): the body ends with the connection.
        response.head_mut().no_chunking(true);
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    let end = match length {
        _ if is_live => End::Live(Live::new(is_events, edge.drain.clone())),
        Some(length) => End::Stall { length, limit: edge.config.upstream.stall },
        None => End::Service,
    };
    Ok(response.set_body(relay(answer.into_body(), end, permit)))
}

fn permit(edge: &EdgeProxy, request: &HttpRequest, context: &RequestContext) -> Result<Share<LimitKey>, Failure> {
    let streams = &edge.config.limiters.of(context.entrance).streams;
    let limit = RateLimit::all_open("streams", streams.limit(), "streams and long-polls of one caller");
    streams.take(context.limit_key).ok_or_else(|| Failure::Client(limit.refuse(request)))
}
