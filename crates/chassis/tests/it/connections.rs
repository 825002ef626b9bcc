//! Connections: a handler is cancelled when its client disconnects, and an answer ends where its reader expects the end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpResponse;
use ensemble_chassis::auth::FixedKeys;
use ensemble_chassis::live::sse;
use ensemble_chassis::{
    Access, Clock, Drain, HandlerResult, IdempotentJson, Json, KeySet, KeySource, Listeners, Routes, Running, Service,
    ServiceContext, StartError, State, Vars, Worker, get, post, start,
};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Nothing in these tests takes longer.
const SOON: Duration = Duration::from_secs(60);

struct Waits(Drain);

#[derive(Serialize, Deserialize, ToSchema)]
struct Thing {
    name: String,
}

async fn poll(waits: State<Waits>) -> HandlerResult<Json<Value>> {
    waits.0.closing().await;
    Ok(Json(json!({})))
}

async fn poll_with_body(waits: State<Waits>, Json(_): Json<Thing>) -> HandlerResult<Json<Value>> {
    poll(waits).await
}

async fn follow(waits: State<Waits>) -> HandlerResult<HttpResponse> {
    Ok(sse(stream::pending(), &waits.0))
}

async fn make(IdempotentJson { body, key, .. }: IdempotentJson<Thing>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!({ "name": body.name, "key": key.map(|key| key.key) })))
}

async fn read() -> HandlerResult<Json<Value>> {
    Ok(Json(json!({ "name": "x" })))
}

impl Service for Waits {
    const NAME: &'static str = "waits";
    const DEFAULT_PORT: u16 = 1;
    type Config = ();

    fn configure(_: &mut Vars) {}

    fn routes() -> Routes {
        Routes::new()
            .row(get("/v1/poll").access(Access::Public).response::<Thing>(200).handler(poll))
            .row(post("/v1/poll").access(Access::Public).body::<Thing>().response::<Thing>(200).handler(poll_with_body))
            .row(
                get("/v1/stream")
                    .access(Access::Public)
                    .response_as(200, "text/event-stream", "A text.")
                    .handler(follow),
            )
            .row(post("/v1/things").access(Access::Public).body::<Thing>().response::<Thing>(200).handler(make))
            .row(get("/v1/things").access(Access::Public).response::<Thing>(200).handler(read))
    }

    async fn build((): (), context: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        Ok((Arc::new(Self(context.drain)), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::new(FixedKeys::new(KeySet::default()))
    }
}

async fn waits() -> Running {
    let vars = Vars::from_pairs([("INTERNAL_TOKEN", "internal"), ("DRAIN_DELAY_MS", "0"), ("WORKERS", "1")]);
    start::<Waits>(vars, Listeners::loopback().unwrap(), Clock::system()).await.unwrap()
}

/// A client that sends exactly the given bytes. The service has threads of its own, so this may block.
struct Raw(TcpStream);

impl Raw {
    fn connect(to: &Running) -> Self {
        let stream = TcpStream::connect(to.public_addr).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until what came ends with `end`.
    fn until(&mut self, end: &str) -> String {
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(end.as_bytes()) {
            match self.0.read(&mut byte) {
                Ok(1) => text.extend_from_slice(&byte),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&text)),
            }
        }
        String::from_utf8(text).unwrap()
    }

    /// All that comes until the service closes.
    fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }
}

/// Polls until this many requests are at work.
async fn at_work(waits: &Running, count: usize) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let reached = async {
        while waits.in_flight() != count {
            ticks.tick().await;
        }
    };
    let in_time = tokio::time::timeout(SOON, reached).await;
    assert!(in_time.is_ok(), "{} are at work, not {count}", waits.in_flight());
}

#[tokio::test]
async fn the_answer_to_head_is_over_with_its_head() {
    let waits = waits().await;
    let mut raw = Raw::connect(&waits);
    for path in ["/v1/stream", "/v1/things"] {
        raw.send(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let head = raw.until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(head.contains("content-length: 12\r\n"), path == "/v1/things", "{head}");
        at_work(&waits, 0).await;
        raw.send("GET /v1/things HTTP/1.1\r\nHost: x\r\n\r\n");
        let answer = raw.until(r#"{"name":"x"}"#);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert!(waits.stop().await);
}

#[tokio::test]
async fn handlers_of_disconnected_clients_are_cancelled() {
    let waits = waits().await;
    let with_body = "POST /v1/poll HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n\
        {\"name\":\"x\"}";
    for request in ["GET /v1/poll HTTP/1.1\r\nHost: x\r\n\r\n", with_body, "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        let mut gone: Vec<Raw> = (0..3).map(|_| Raw::connect(&waits)).collect();
        gone.iter_mut().for_each(|raw| raw.send(request));
        let mut stays = Raw::connect(&waits);
        stays.send(request);
        at_work(&waits, 4).await;
        drop(gone);
        at_work(&waits, 1).await;
        drop(stays);
        at_work(&waits, 0).await;
    }
    assert!(waits.stop().await);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_400() {
    let waits = waits().await;
    for framing in ["Content-Length: 12\r\n\r\n{\"name\"", "Transfer-Encoding: chunked\r\n\r\n7\r\n{\"name\"\r\n"] {
        let mut raw = Raw::connect(&waits);
        raw.send(&format!("POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{framing}"));
        at_work(&waits, 1).await;
        raw.0.shutdown(Shutdown::Write).unwrap();
        let answer = raw.rest();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("INVALID_ARGUMENT"), "{answer:?}");
    }
    assert!(waits.stop().await);
}

#[tokio::test]
async fn repeated_fields_and_other_charsets_are_refused() {
    let waits = waits().await;
    const JSON: &str = "Content-Type: application/json\r\n";
    let key = |name: &str| format!("Idempotency-Key: {name}-0123456789abcdef\r\n");
    for (fields, status) in [
        (JSON.to_owned(), 200),
        ([JSON, &key("a")].concat(), 200),
        ([JSON, &key("a"), &key("b")].concat(), 400),
        ([JSON, &key("a"), &key("a")].concat(), 400),
        ([JSON, JSON].concat(), 400),
        ([JSON, "Content-Type: text/plain\r\n"].concat(), 400),
        ([JSON, "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"].concat(), 400),
        ("Content-Type: application/json; charset=utf-8\r\n".to_owned(), 200),
        ("Content-Type: application/json ; Charset=\"UTF-8\"\r\n".to_owned(), 200),
        ("Content-Type: application/json; charset=latin1\r\n".to_owned(), 415),
        ("Content-Type: application/json; charset=utf-16\r\n".to_owned(), 415),
        ("Content-Type: application/json; charset=utf-8; charset=utf-16\r\n".to_owned(), 415),
    ] {
        let mut raw = Raw::connect(&waits);
        raw.send(&format!(
            "POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}Content-Length: 12\r\n\r\n\
             {{\"name\":\"x\"}}"
        ));
        let answer = raw.rest();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields:?}: {answer}");
        let code = match status {
            400 => "INVALID_ARGUMENT",
            415 => "UNSUPPORTED_MEDIA_TYPE",
            _ => "name",
        };
        assert!(answer.contains(code), "{fields:?}: {answer}");
    }
    assert!(waits.stop().await);
}
