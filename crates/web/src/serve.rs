//! Serves the page to browsers on this computer, with the address of its server.
//!
//! Only loopback is listened on, and only the address that was printed is answered: a foreign name that leads here (DNS rebinding) gets
//! nothing.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, HOST, HeaderName, IF_NONE_MATCH};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpResponseBuilder, HttpServer};

use crate::{File, POLICY};

/// Where the page reads the address of its server, as `{"server": "https://ensemble.example.com"}`.
const SERVER: &str = "/server.json";
/// How long a browser may take to send the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Connections at one time. A browser opens six.
const CONNECTIONS: usize = 256;
/// Fields of every answer, in addition to those of a file.
const ALWAYS: [(&str, &str); 2] =
    [("x-content-type-options", "nosniff"), ("cross-origin-resource-policy", "same-origin")];

/// What is served.
struct Page {
    /// `127.0.0.1` with the port, as browsers send it.
    host: String,
    /// The base address of the server that the page calls.
    server: String,
    policy: String,
}

/// What serves the page.
pub struct Serving {
    /// To be opened in a browser.
    pub address: String,
    pub server: Server,
}

/// Serves on this port of 127.0.0.1 (0: any free one) until it is stopped. `server` is the base address that the page calls, and `origin`
/// its origin.
pub fn serve(port: u16, server: String, origin: &str) -> io::Result<Serving> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let port = listener.local_addr()?.port();
    let host = if port == 80 { "127.0.0.1".to_owned() } else { format!("127.0.0.1:{port}") };
    let address = format!("http://{host}");
    let page = Data::new(Page { host, server, policy: crate::policy(&[origin]) });
    let server = HttpServer::new(move || App::new().app_data(page.clone()).default_service(web::to(answer)))
        .workers(1)
        .max_connections(CONNECTIONS)
        .client_request_timeout(HEAD_WITHIN)
        .shutdown_timeout(1)
        .disable_signals()
        .listen(listener)?
        .run();
    Ok(Serving { address, server })
}

async fn answer(request: HttpRequest, page: Data<Page>) -> HttpResponse {
    let mut hosts = request.headers().get_all(HOST);
    let host = hosts.next().filter(|_| hosts.next().is_none());
    if host.is_none_or(|host| host.as_bytes() != page.host.as_bytes()) {
        let text = format!("This page is served at http://{} only.\n", page.host);
        return refused(StatusCode::MISDIRECTED_REQUEST).body(text);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return refused(StatusCode::METHOD_NOT_ALLOWED).insert_header((ALLOW, "GET, HEAD")).body("Use GET or HEAD.\n");
    }
    let (path, accepted) = (request.path(), field(&request, ACCEPT_ENCODING));
    if path == SERVER {
        return with(StatusCode::OK)
            .insert_header((CACHE_CONTROL, "no-store"))
            .json(serde_json::json!({ "server": page.server }));
    }
    // What has an ending is a file. Every other path is a place in the app.
    let is_file = path.rsplit('/').next().unwrap_or_default().contains('.');
    let file = if is_file { crate::file(path.trim_start_matches('/'), &accepted) } else { crate::page(&accepted) };
    match file {
        Some(file) => send(&request, &page.policy, file),
        None => refused(StatusCode::NOT_FOUND).body("There is no such file.\n"),
    }
}

fn send(request: &HttpRequest, policy: &str, file: File) -> HttpResponse {
    let is_known = field(request, IF_NONE_MATCH).split(',').any(|tag| tag.trim() == file.etag);
    let mut answer = with(if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK });
    for (name, value) in file.fields(policy) {
        if !(is_known && ["content-type", "content-encoding"].contains(&name)) {
            answer.insert_header((name, value));
        }
    }
    if is_known {
        return answer.finish();
    }
    answer.body(Bytes::from_static(file.bytes))
}

fn with(status: StatusCode) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    for one in ALWAYS {
        answer.insert_header(one);
    }
    answer
}

fn refused(status: StatusCode) -> HttpResponseBuilder {
    let mut answer = with(status);
    answer.content_type("text/plain; charset=utf-8").insert_header((POLICY, "default-src 'none'"));
    answer
}

fn field(request: &HttpRequest, name: HeaderName) -> String {
    let lines: Vec<&str> = request.headers().get_all(name).filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}
