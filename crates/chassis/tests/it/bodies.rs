//! Large and unfinished request bodies: what one caller may hold, and that the others are served meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ensemble_chassis::auth::FixedKeys;
use ensemble_chassis::{
    Access, Clock, HandlerResult, Heavy, IdempotentJson, Json, KeySet, KeySource, LargeAnswer, Listeners, Routes,
    Running, Service, ServiceContext, StartError, State, Vars, Worker, get, post, start,
};
use serde_json::{Value, json};

/// Nothing in these tests takes longer.
const SOON: Duration = Duration::from_secs(60);
const MAX: usize = 1 << 20;
/// More than the buffers of two sockets hold.
const PAGE: usize = 12 << 20;

#[derive(Default)]
struct Stores {
    pages: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

async fn store(Json(_): Json<Value>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!({})))
}

async fn count(heavy: Heavy, IdempotentJson { body, .. }: IdempotentJson<Value>) -> HandlerResult<Json<Value>> {
    let serving = std::thread::current().id();
    let elsewhere = heavy.run(move || std::thread::current().id() != serving).await?;
    Ok(Json(json!({ "members": body.as_object().map(serde_json::Map::len), "elsewhere": elsewhere })))
}

async fn page() -> HandlerResult<Json<Value>> {
    Ok(Json(json!({ "page": "x".repeat(PAGE) })))
}

/// A page whose length is known before it is made.
async fn announced(service: State<Stores>, large: LargeAnswer) -> HandlerResult<Json<Value>> {
    let _turn = large.turn_for(PAGE).await?;
    service.pages.fetch_add(1, Ordering::SeqCst);
    page().await
}

/// A page that is longer than was announced.
async fn understated(large: LargeAnswer) -> HandlerResult<Json<Value>> {
    let _turn = large.turn_for(1).await?;
    page().await
}

async fn pages(service: State<Stores>) -> HandlerResult<Json<Value>> {
    Ok(Json(json!(service.pages.load(Ordering::SeqCst))))
}

/// How many of these calls were worked on at once so far.
async fn in_turn(service: State<Stores>) -> HandlerResult<Json<Value>> {
    service.most_at_once.fetch_max(service.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    service.at_once.fetch_sub(1, Ordering::SeqCst);
    Ok(Json(json!(service.most_at_once.load(Ordering::SeqCst))))
}

impl Service for Stores {
    const NAME: &'static str = "stores";
    const DEFAULT_PORT: u16 = 1;
    type Config = ();

    fn configure(_: &mut Vars) {}

    fn routes() -> Routes {
        Routes::new()
            .row(
                post("/v1/short").access(Access::Public).response_as(200, "application/json", "A text.").handler(store),
            )
            .row(get("/v1/page").access(Access::Public).response_as(200, "application/json", "A text.").handler(page))
            .row(
                get("/v1/announced")
                    .access(Access::Public)
                    .response_as(200, "application/json", "A text.")
                    .handler(announced),
            )
            .row(
                get("/v1/understated")
                    .access(Access::Public)
                    .response_as(200, "application/json", "A text.")
                    .handler(understated),
            )
            .row(get("/v1/pages").access(Access::Public).response_as(200, "application/json", "A text.").handler(pages))
            .row(
                get("/v1/turn")
                    .access(Access::Public)
                    .in_turn()
                    .response_as(200, "application/json", "A text.")
                    .handler(in_turn),
            )
            .row(
                post("/v1/long")
                    .access(Access::Public)
                    .max_body(MAX)
                    .response_as(200, "application/json", "A text.")
                    .handler(count),
            )
    }

    async fn build((): (), _: ServiceContext) -> Result<(Arc<Self>, Vec<Worker>), StartError> {
        Ok((Arc::default(), Vec::new()))
    }

    fn keys(&self) -> Arc<dyn KeySource> {
        Arc::new(FixedKeys::new(KeySet::new([], [])))
    }
}

async fn stores(budget: &str) -> Running {
    let vars = [("INTERNAL_TOKEN", "x"), ("DRAIN_DELAY_MS", "0"), ("WORKERS", "1"), ("BODY_BUDGET_BYTES", budget)];
    start::<Stores>(Vars::from_pairs(vars), Listeners::loopback().unwrap(), Clock::system()).await.unwrap()
}

/// Sends a JSON body as the sender with this address.
async fn send(to: &Running, path: &str, from: &str, body: String) -> (u16, Value, Option<String>) {
    let request = reqwest::Client::new().post(format!("{}{path}", to.public_url()));
    let request = request.header("content-type", "application/json").header("x-forwarded-for", from).body(body);
    let answer = request.send().await.unwrap();
    let again = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    (answer.status().as_u16(), answer.json().await.unwrap(), again)
}

/// Asks for a page and reads the status of the answer only.
fn unread(of: &Running, path: &str, from: &str) -> (String, TcpStream) {
    let mut connection = TcpStream::connect(of.public_addr).unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nx-forwarded-for: {from}\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    let mut head = [0; 12];
    connection.read_exact(&mut head).unwrap();
    (String::from_utf8(head[9..].to_vec()).unwrap(), connection)
}

/// Sends all of a body but its last byte.
fn unfinished(to: &Running, from: &str, length: usize) -> TcpStream {
    let mut connection = TcpStream::connect(to.public_addr).unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    let head = format!(
        "POST /v1/long HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-forwarded-for: {from}\r\n\
         content-length: {length}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).unwrap();
    // The service may refuse it before the end.
    let _ = connection.write_all(&vec![b' '; length - 1]);
    connection
}

/// Waits until what the service holds is as expected.
async fn holds(at: &Running, expected: impl Fn(f64) -> bool) {
    let holds = async {
        while !expected(held(at).await) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, holds).await.unwrap();
}

async fn held(at: &Running) -> f64 {
    let metrics = reqwest::get(format!("{}/metrics", at.internal_url())).await.unwrap().text().await.unwrap();
    let line = metrics.lines().find(|line| line.starts_with("ensemble_request_body_bytes")).unwrap().to_owned();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_route_has_its_own_bound_and_refuses_before_it_reads() {
    let stores = stores("1000000").await;
    for (path, bound) in [("/v1/short", 64 << 10), ("/v1/long", MAX)] {
        let of = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
        assert_eq!(send(&stores, path, "10.0.0.1", of(bound + 1)).await.0, 413, "{path}");
        let mut connection = TcpStream::connect(stores.public_addr).unwrap();
        connection.set_read_timeout(Some(SOON)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            bound + 1
        );
        connection.write_all(head.as_bytes()).unwrap();
        let mut answer = [0; 12];
        connection.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{path}: announced");
    }
    let most = format!("{{{}}}", " ".repeat((64 << 10) - 2));
    assert_eq!(send(&stores, "/v1/short", "10.0.0.1", most).await.0, 200);
    assert!(stores.stop().await);
}

#[tokio::test]
async fn a_body_in_very_many_pieces_is_refused() {
    let stores = stores("64000000").await;
    // The body is white space in an object, in chunks of this length.
    let in_chunks = |length: usize, count: usize| {
        let mut connection = TcpStream::connect(stores.public_addr).unwrap();
        connection.set_read_timeout(Some(SOON)).unwrap();
        let head =
            "POST /v1/long HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = format!("{length:x}\r\n{}\r\n", " ".repeat(length));
        let body = format!("1\r\n{{\r\n{}1\r\n}}\r\n0\r\n\r\n", chunk.repeat(count));
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut status = [0; 12];
        connection.read_exact(&mut status).unwrap();
        String::from_utf8(status[9..].to_vec()).unwrap()
    };
    assert_eq!(in_chunks(1, 1_000), "200");
    assert_eq!(in_chunks(1, 2_000), "400");
    assert_eq!(in_chunks(100, 8_000), "200");
    assert!(stores.stop().await);
}

#[tokio::test]
async fn a_connection_ends_when_its_chunked_body_was_not_read() {
    let stores = stores("64000000").await;
    for (path, status) in [("/v1/long", "400"), ("/v1/unknown", "404")] {
        let mut connection = TcpStream::connect(stores.public_addr).unwrap();
        connection.set_read_timeout(Some(SOON)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all("1\r\n \r\n".repeat(4_000).as_bytes()).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).expect("the connection ends, although the body has no end");
        assert_eq!(&answer[9..12], status.as_bytes());
    }
    assert!(stores.stop().await);
}

#[tokio::test]
async fn unfinished_bodies_leave_room_for_other_callers() {
    let stores = stores("2000000").await;
    // A quarter is 500,000 bytes; the first 64 KiB of each body are free.
    let long = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    let first = unfinished(&stores, "10.0.0.1", 500_000);
    holds(&stores, |bytes| bytes > 400_000.0).await;
    let (status, problem, again) = send(&stores, "/v1/long", "10.0.0.1", long(500_000)).await;
    assert_eq!((status, again.as_deref()), (503, Some("2")), "{problem}");
    assert_eq!(send(&stores, "/v1/long", "10.0.0.2", long(500_000)).await.0, 200, "another caller");
    assert_eq!(send(&stores, "/v1/long", "10.0.0.1", long(60_000)).await.0, 200, "a short one");
    let more: Vec<_> = (2..=4).map(|last| unfinished(&stores, &format!("10.0.0.{last}"), 550_000)).collect();
    holds(&stores, |bytes| bytes > 1_800_000.0).await;
    assert_eq!(send(&stores, "/v1/long", "10.0.0.9", long(500_000)).await.0, 503, "all of it is held");
    assert_eq!(send(&stores, "/v1/short", "10.0.0.9", long(60_000)).await.0, 200, "short ones never wait");
    drop((first, more));
    holds(&stores, |bytes| bytes < 1.0).await;
    assert_eq!(send(&stores, "/v1/long", "10.0.0.9", long(500_000)).await.0, 200);
    assert!(stores.stop().await);
}

#[tokio::test]
async fn unread_answers_leave_room_for_other_callers() {
    let stores = stores("64000000").await;
    let ask = |from| unread(&stores, "/v1/page", from);
    let first = ask("10.0.0.1");
    assert_eq!(first.0, "200");
    assert_eq!(ask("10.0.0.1").0, "503", "a quarter of the budget holds one page");
    let other = ask("10.0.0.2");
    assert_eq!(other.0, "200");
    drop((first, other));
    holds(&stores, |bytes| bytes < 1.0).await;
    assert_eq!(ask("10.0.0.1").0, "200");
    assert!(stores.stop().await);
}

#[tokio::test]
async fn an_answer_that_will_not_fit_is_not_made() {
    let stores = stores("64000000").await;
    let first = unread(&stores, "/v1/announced", "10.0.0.1");
    assert_eq!(first.0, "200");
    assert_eq!(unread(&stores, "/v1/announced", "10.0.0.1").0, "503");
    assert_eq!(unread(&stores, "/v1/understated", "10.0.0.1").0, "503", "what it takes counts, not what was said");
    assert_eq!(unread(&stores, "/v1/understated", "10.0.0.2").0, "200");
    let made = reqwest::get(format!("{}/v1/pages", stores.public_url())).await.unwrap().json::<usize>().await.unwrap();
    assert_eq!(made, 1);
    drop(first);
    holds(&stores, |bytes| bytes < 1.0).await;
    assert_eq!(unread(&stores, "/v1/announced", "10.0.0.1").0, "200");
    assert!(stores.stop().await);
}

#[tokio::test]
async fn callers_take_turns_with_large_answers() {
    let stores = stores("64000000").await;
    let ask = async |from: String| {
        let request = reqwest::Client::new().get(format!("{}/v1/turn", stores.public_url()));
        request.header("x-forwarded-for", from).send().await.unwrap().json::<usize>().await.unwrap()
    };
    let of_one = futures_util::future::join_all((0..40).map(|_| ask("10.0.0.1".to_owned()))).await;
    assert_eq!(of_one.iter().max(), Some(&1), "one caller");
    let of_many = futures_util::future::join_all((0..40).map(|last| ask(format!("10.0.0.{last}")))).await;
    assert_eq!(of_many.iter().max(), Some(&8), "all callers");
    assert!(stores.stop().await);
}

#[tokio::test]
async fn large_bodies_are_worked_on_elsewhere() {
    let stores = stores("64000000").await;
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|at| format!("\"member-{at}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    for (count, elsewhere) in [(100, false), (9_000, true)] {
        let (status, answer, _) = send(&stores, "/v1/long", "10.0.0.1", members(count)).await;
        assert_eq!((status, &answer["members"], &answer["elsewhere"]), (200, &json!(count), &json!(elsewhere)));
    }
    assert_eq!(send(&stores, "/v1/long", "10.0.0.1", members(10_001)).await.0, 400);
    assert!(stores.stop().await);
}
