//! Serves the page to browsers on this computer, with the address of its server.
//!
//! Only loopback is listened on, and only the address that was printed is answered: a foreign name that leads here (DNS rebinding) gets
//! nothing.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use actix_web::http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, HOST, HeaderName, IF_NONE_MATCH};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpResponseBuilder, HttpServer};
use ensemble_web::File;

use crate::commands::{DONE, open};
use crate::context::{Context, answers, interrupts};
use crate::failure::{Failure, Result};
use crate::print;

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

/// Serves until Ctrl-C.
pub(super) async fn run(context: &Context, port: u16, wants_browser: bool) -> Result {
    let (client, _) = context.account()?;
    let server = client.base().as_str().trim_end_matches('/').to_owned();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| taken(port, &error))?;
    let port = listener.local_addr()?.port();
    let host = if port == 80 { "127.0.0.1".to_owned() } else { format!("127.0.0.1:{port}") };
    let policy = ensemble_web::policy(&[client.origin()]);
    let address = format!("http://{host}");
    let page = Data::new(Page { host, server: server.clone(), policy });
    let mut interrupted = interrupts()?;
    let serving = HttpServer::new(move || App::new().app_data(page.clone()).default_service(web::to(answer)))
        .workers(1)
        .max_connections(CONNECTIONS)
        .client_request_timeout(HEAD_WITHIN)
        .shutdown_timeout(1)
        .disable_signals()
        .listen(listener)?
        .run();
    let handle = serving.handle();
    let serving = tokio::spawn(serving);
    if context.json {
        print::json(&serde_json::json!({ "address": address, "server": server }), false)?;
    } else {
        print::line(&address)?;
        print::note(format!("The page comes from this program, and works with {server}. Ctrl-C stops it."));
        if !answers(&server).await {
            print::note(format!("Nothing answers at {server} now. The page needs it; --server URL names another."));
        }
    }
    if wants_browser {
        open::show(&address);
    }
    tokio::select! {
        _ = interrupted.recv() => {
            handle.stop(true).await;
            Ok(DONE)
        }
        ended = serving => Err(Failure::message(format!("The page is no longer served: {ended:?}."))),
    }
}

fn taken(port: u16, error: &std::io::Error) -> Failure {
    Failure::message(format!(
        "Port {port} of 127.0.0.1 cannot be used: {error}. Perhaps `ensemble web` runs already. Another one is chosen with --port; a \
         browser has separate keys for each port."
    ))
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
    let file = if is_file {
        ensemble_web::file(path.trim_start_matches('/'), &accepted)
    } else {
        ensemble_web::page(&accepted)
    };
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
    answer.content_type("text/plain; charset=utf-8").insert_header((ensemble_web::POLICY, "default-src 'none'"));
    answer
}

fn field(request: &HttpRequest, name: HeaderName) -> String {
    let lines: Vec<&str> = request.headers().get_all(name).filter_map(|line| line.to_str().ok()).collect();
    lines.join(",")
}
