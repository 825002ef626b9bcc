//! The web app: its page at every address that it has a screen for, and its files. Programs that ask without wanting HTML get what
//! they got before.

use actix_web::http::header::{ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, HeaderName, HeaderValue, VARY};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use ensemble_chassis::http::known_etag;
use ensemble_chassis::{HandlerResult, Path, State, Vars};
use ensemble_types::problem::Problem;
use ensemble_web::File;

use super::docs;
use crate::EdgeProxy;
use crate::domain::cors::origin_of;

/// What the page may do, by the configuration of voice.
pub(crate) fn configured_policy(vars: &mut Vars) -> String {
    ensemble_web::policy(livekit(vars).as_deref().as_slice())
}

/// Where the voice of the web app connects to, as in `wss://voice.example.com`: the same two variables as of voice-gateway. Without them the web app connects to its own server only.
fn livekit(vars: &mut Vars) -> Option<String> {
    let shared = vars.text("LIVEKIT_URL", "LiveKit's address, where LIVEKIT_WS_URL is not set", "");
    let url = vars.text("LIVEKIT_WS_URL", "LiveKit's address for clients, which the web app may connect to", &shared);
    if url.is_empty() {
        return None;
    }
    let http = url.strip_prefix("ws").map_or(url.clone(), |rest| format!("http{rest}"));
    let Some(origin) = origin_of(&http) else {
        vars.add_error("LIVEKIT_WS_URL", "is no address that begins with ws:// or wss://");
        return None;
    };
    Some(origin.replacen("http", "ws", 1))
}

/// `/`: the page for browsers. Programs are led to the documentation.
pub(crate) async fn home(edge: State<EdgeProxy>, request: HttpRequest) -> HandlerResult<HttpResponse> {
    if wants_html(&request) {
        return page(&edge, &request);
    }
    let mut answer = docs::to_page().await?;
    answer.headers_mut().insert(VARY, vary());
    Ok(answer)
}

/// `/share/TOKEN`: the page of a public link, for browsers and programs. It fetches what the link shows, and opens it with the key in the
/// address's fragment, which no server sees.
pub(crate) async fn shared(
    edge: State<EdgeProxy>,
    _token: Path<String>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    let mut answer = page(&edge, &request)?;
    // The address is a secret, which a cache on a disk would keep.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The page, which is the same at each of its addresses.
pub(super) fn page(edge: &EdgeProxy, request: &HttpRequest) -> HandlerResult<HttpResponse> {
    let page = ensemble_web::page(&field(request, ACCEPT_ENCODING)).ok_or_else(Problem::not_found)?;
    Ok(send(edge, request, page))
}

/// What the app answers at a path that belongs to no service: a file of it, its page where it has a screen, and the same page with the
/// status 404 to a person who has mistyped an address. It says so and leads home.
pub(crate) fn other(edge: &EdgeProxy, request: &HttpRequest) -> Option<HttpResponse> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let (path, is_person) = (request.path(), wants_html(request));
    if is_person && ensemble_web::is_route(path) {
        return page(edge, request).ok();
    }
    let found = file(edge, request, path.trim_start_matches('/'));
    found.or_else(|| (is_person && !is_of_interface(path)).then(|| nowhere(edge, request)).flatten())
}

/// An address of the interface, as `/v1/sessions`, of any version.
fn is_of_interface(path: &str) -> bool {
    path.strip_prefix("/v").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn nowhere(edge: &EdgeProxy, request: &HttpRequest) -> Option<HttpResponse> {
    let page = ensemble_web::page(&field(request, ACCEPT_ENCODING))?;
    let mut answer = HttpResponse::NotFound();
    // It is the page of another address, so a browser has no copy of it.
    for (name, value) in page.fields(&edge.config.page_policy).into_iter().filter(|(name, _)| *name != "etag") {
        answer.insert_header((name, value));
    }
    Some(answer.body(Bytes::from_static(page.bytes)))
}

/// A file of the app by its path without the first slash.
pub(super) fn file(edge: &EdgeProxy, request: &HttpRequest, path: &str) -> Option<HttpResponse> {
    ensemble_web::file(path, &field(request, ACCEPT_ENCODING)).map(|file| send(edge, request, file))
}

fn send(edge: &EdgeProxy, request: &HttpRequest, file: File) -> HttpResponse {
    let is_known = known_etag(request, &file.etag).is_some();
    let mut answer = HttpResponse::build(if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    for (name, value) in file.fields(&edge.config.page_policy) {
        // Those of the body go with a body.
        if !(is_known && ["content-type", "content-encoding"].contains(&name)) {
            answer.insert_header((name, value));
        }
    }
    if is_known {
        return answer.finish();
    }
    answer.body(Bytes::from_static(file.bytes))
}

fn vary() -> HeaderValue {
    HeaderValue::from_static("Accept, Accept-Encoding")
}

/// Browsers name HTML when they open an address; programs send `*/*` or nothing.
fn wants_html(request: &HttpRequest) -> bool {
    field(request, ACCEPT).split([',', ';']).any(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

/// A field of the request, its lines joined (RFC 9110, section 5.3).
fn field(request: &HttpRequest, name: HeaderName) -> String {
    let lines: Vec<&str> = request.headers().get_all(name).filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}
