//! Every request of one thread, from its head to the head of its answer.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::body::{BodySize, MessageBody};
use actix_http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    TRANSFER_ENCODING,
};
use actix_http::{ConnectionType, Method, Request, RequestHead, Response, Version};
use ensemble_chassis::http::InFlight;
use ensemble_chassis::process::{ThreadHandlers, telemetry};
use ensemble_types::problem::{Code, Problem};
use tokio::time::Instant;
use tracing::Instrument;

use super::body::{EdgeBody, Held};
use super::reply::{self, X_REQUEST_ID};
use super::request_ids::RequestIds;
use super::{failure, relay};
use crate::EdgeProxy;
use crate::domain::client_address;
use crate::domain::request_target;
use crate::domain::route_table::{self, Class, Destination, Patience, PerUpstream, Upstream};
use crate::guard::connection::Connection;
use crate::guard::stream::REFUSED_METHOD;
use crate::limits::{Counted, Standing};
use crate::upstream::answer_head::AnswerFraming;
use crate::upstream::failure::Failure;
use crate::upstream::pool::Pool;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// What one thread answers requests with.
pub struct Front {
    pub edge: Arc<EdgeProxy>,
    pub in_flight: InFlight,
    pub pools: PerUpstream<Rc<Pool>>,
    pub pages: ThreadHandlers,
    pub request_ids: RequestIds,
}

/// What the edge knows of a request, beside its head.
pub(super) struct Seen {
    pub(super) id: HeaderValue,
    pub(super) client: IpAddr,
    pub(super) is_https: bool,
    pub(super) counted: Counted,
}

impl Front {
    pub async fn answer(self: Rc<Self>, mut request: Request) -> Response<EdgeBody> {
        let started = Instant::now();
        normalise(&mut request);
        let Some(connection) = request.conn_data::<Rc<Connection>>().map(Rc::clone) else {
            return Response::with_body(
                actix_http::StatusCode::INTERNAL_SERVER_ERROR,
                EdgeBody::whole("", Held::default()),
            );
        };
        let held =
            Held { answering: Some(connection.answering()), passage: Some(self.in_flight.enter()), stream: None };
        let head = request.head();
        let (method, destination) = (head.method.clone(), route_table::destination(head.uri.path()));
        let class = route_table::class(method == Method::POST, head.uri.path());
        let seen = self.see(head, connection.peer());
        let origin = head.headers.get(ORIGIN).cloned();
        let is_old = head.version == Version::HTTP_10;

        let (mut response, standing) = self.decide(request, &connection, destination, class, &seen, held).await;

        let status = response.status();
        let headers = response.headers_mut();
        headers.insert(X_REQUEST_ID, seen.id.clone());
        if let Some(standing) = &standing {
            reply::add_standing(headers, standing);
        }
        if origin.is_some() || self.edge.has_cors() {
            reply::add_cors(headers, origin.and_then(|origin| self.edge.cors().allow(&origin)));
        }
        reply::add_safety(headers, seen.is_https);
        if class == Class::PublicLink {
            // The address is a secret, which a list of search results would tell.
            headers.insert(X_ROBOTS_TAG, HeaderValue::from_static("noindex"));
        }
        let ends_with_connection = is_old && response.body().size() == BodySize::Stream;
        if ends_with_connection {
            // HTTP/1.0 has no chunks (RFC 9112, section 7.1).
            response.head_mut().no_chunking(true);
        }
        if ends_with_connection || connection.verdict().is_some() || self.edge.drain().is_draining() {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        let took = started.elapsed();
        self.edge.metrics().record(destination, status, took);
        tracing::info!(
            request.id = seen.id.to_str().unwrap_or_default(),
            method = method.as_str(),
            to = name_of(destination),
            status = status.as_u16(),
            took_ms = took.as_secs_f64() * 1e3,
            "Answered"
        );
        response
    }

    async fn decide(
        &self,
        mut request: Request,
        connection: &Connection,
        destination: Destination,
        class: Class,
        seen: &Seen,
        held: Held,
    ) -> (Response<EdgeBody>, Option<Standing>) {
        let head = request.head();
        if head.method.as_str() == REFUSED_METHOD
            && let Some(refusal) = connection.verdict()
        {
            return (reply::problem(refusal.into(), &seen.id, held), None);
        }
        if let Some(origin) = preflight_origin(head) {
            return (reply::preflight(self.edge.cors().allow(origin).is_some(), held), None);
        }
        let standing = self.edge.limiter().count(class, seen.counted, seen.client);
        if let Some(wait) = standing.as_ref().and_then(|standing| standing.refused_for) {
            return (reply::problem(too_many(wait), &seen.id, held), standing);
        }
        let response = match destination {
            Destination::Nowhere => {
                let problem = Problem::new(Code::NotFound, "There is no such path. /openapi.json lists all there are.");
                reply::problem(problem, &seen.id, held)
            }
            Destination::Edge => {
                request.headers_mut().insert(X_REQUEST_ID, seen.id.clone());
                (self.pages)(request).await.map_body(|_, body| EdgeBody::page(body, held))
            }
            Destination::Service(upstream) => self.relay(request, connection, upstream, class, seen, held).await,
        };
        (response, standing)
    }

    async fn relay(
        &self,
        request: Request,
        connection: &Connection,
        upstream: Upstream,
        class: Class,
        seen: &Seen,
        mut held: Held,
    ) -> Response<EdgeBody> {
        if route_table::timeout(request.head().uri.path()) == Patience::LongPoll {
            held.stream = self.edge.streams().open(seen.counted);
            if held.stream.is_none() {
                return reply::problem(too_many_streams(), &seen.id, held);
            }
        }
        // Made for traces only; where none are collected it costs nothing.
        let span = tracing::debug_span!(
            "request",
            otel.name = %format_args!("{} {}", request.head().method, upstream.name()),
            otel.kind = "server",
            http.request.method = request.head().method.as_str(),
            request.id = seen.id.to_str().unwrap_or_default(),
            http.response.status_code = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        if !span.is_disabled() {
            telemetry::adopt_parent(&span, &request.head().headers);
        }
        let relayed = relay::relay(self, request, upstream, seen).instrument(span.clone()).await;
        match &relayed {
            Ok(relayed) => span.record("http.response.status_code", relayed.head.response.status().as_u16()),
            Err(_) => span.record("otel.status_code", "ERROR"),
        };
        match relayed {
            Ok(relayed) => self.pass_on(relayed, class, seen, held),
            Err(failure) => {
                failure::log(&failure, upstream, seen.id.to_str().unwrap_or_default());
                let problem = match (&failure, connection.verdict()) {
                    (Failure::Client(_), Some(refusal)) => refusal.into(),
                    _ => failure::problem(&failure, upstream),
                };
                reply::problem(problem, &seen.id, held)
            }
        }
    }

    fn pass_on(&self, relayed: relay::Relayed, class: Class, seen: &Seen, mut held: Held) -> Response<EdgeBody> {
        let relay::Relayed { head, answer } = relayed;
        if class == Class::SignIn && head.is_new_account {
            self.edge.limiter().count_new_account(seen.client);
        }
        let is_events = is_events(head.response.headers());
        // How services mark what must not be kept back on its way, of which there is no end in sight.
        let is_live = head.framing == AnswerFraming::Chunked
            && head.response.headers().get(X_ACCEL_BUFFERING).is_some_and(|value| value.as_bytes() == b"no");
        if is_events && held.stream.is_none() {
            held.stream = self.edge.streams().open(seen.counted);
            if held.stream.is_none() {
                return reply::problem(too_many_streams(), &seen.id, held);
            }
        }
        let body = match answer {
            None => EdgeBody::absent(head.length, held),
            Some(answer) if is_events || is_live => EdgeBody::live(answer, is_events, self.edge.drain().clone(), held),
            Some(answer) => EdgeBody::service(answer, head.framing, held),
        };
        head.response.set_body(body)
    }

    fn see(&self, head: &RequestHead, peer: IpAddr) -> Seen {
        let trusted = self.edge.trusted_proxies();
        let forwarded = head.headers.get_all(X_FORWARDED_FOR).filter_map(|value| value.to_str().ok());
        let forwarded: Vec<&str> = if trusted.is_empty() { Vec::new() } else { forwarded.collect() };
        let client = client_address::client(peer, forwarded.into_iter(), trusted);
        let is_https = self.edge.is_https()
            || (client != peer.to_canonical()
                && head.headers.get(X_FORWARDED_PROTO).is_some_and(|scheme| scheme.as_bytes() == b"https"));
        let caller = reply::bearer(&head.headers).filter(|token| looks_like_a_token(token));
        let caller = caller.and_then(|token| self.edge.auth().identify(token));
        let id = request_id(&head.headers).unwrap_or_else(|| self.request_ids.next());
        Seen { id, client, is_https, counted: Counted::new(caller.as_ref(), client) }
    }
}

/// From here on everybody reads the same path: the edge, which classifies it, and the service, which would decode it.
fn normalise(request: &mut Request) {
    let target = request.head().uri.path_and_query().map_or("", |target| target.as_str());
    if let Cow::Owned(plain) = request_target::normalise(target)
        && let Ok(uri) = plain.parse()
    {
        request.head_mut().uri = uri;
    }
}

fn name_of(destination: Destination) -> &'static str {
    match destination {
        Destination::Service(upstream) => upstream.name(),
        Destination::Edge => "edge",
        Destination::Nowhere => "nowhere",
    }
}

/// A JWT begins with an encoded brace; anything else, a voice key for instance, need not be parsed.
fn looks_like_a_token(token: &str) -> bool {
    token.starts_with("ey")
}

fn preflight_origin(head: &RequestHead) -> Option<&HeaderValue> {
    let asks = head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    head.headers.get(ORIGIN).filter(|_| asks)
}

/// The caller's own, when it is well-formed.
fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_well_formed = |id: &&HeaderValue| {
        (1..=128).contains(&id.len())
            && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    headers.get(X_REQUEST_ID).filter(is_well_formed).cloned()
}

fn is_events(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// How a request that the guard let through is framed.
pub(super) fn framing(head: &RequestHead) -> crate::domain::head_scanner::Framing {
    use crate::domain::head_scanner::Framing;
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Framing::Chunked;
    }
    let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    match length {
        None | Some(0) => Framing::None,
        Some(length) => Framing::Length(length),
    }
}

fn too_many(wait: Duration) -> Problem {
    let seconds = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX).max(1);
    Problem::new(Code::RateLimited, format!("Slow down: try again in {seconds} s.")).with_retry_after(seconds)
}

fn too_many_streams() -> Problem {
    Problem::new(Code::RateLimited, "You hold too many streams and long-polls. End some first.").with_retry_after(5)
}
