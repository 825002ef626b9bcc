//! Long answers: passed on as they come, closed when the client disconnects, limited in number, and cheap while idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ensemble_testkit::in_time;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

use crate::Edge;
use crate::raw::SOON;
use crate::stub::{Reaction, Stub};

pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Polls until the condition holds.
pub(crate) async fn eventually(is_so: impl Fn() -> bool) {
    ensemble_testkit::eventually(SOON, async || is_so()).await;
}

/// The head of a text that does not end, like the output of a task that is followed.
pub(crate) const TEXT_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n\
    x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n";

/// A service that streams what a test says to all its clients.
pub(crate) struct Broadcast {
    pub(crate) url: String,
    pub(crate) say: broadcast::Sender<&'static str>,
    pub(crate) open: Arc<AtomicUsize>,
}

pub(crate) async fn broadcast() -> Broadcast {
    broadcast_as(STREAM_HEAD).await
}

pub(crate) async fn broadcast_as(head_of_answer: &'static [u8]) -> Broadcast {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (say, _) = broadcast::channel::<&'static str>(16);
    let open = Arc::new(AtomicUsize::new(0));
    let (sender, count) = (say.clone(), Arc::clone(&open));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (mut words, count) = (sender.subscribe(), Arc::clone(&count));
            tokio::spawn(async move {
                let (mut read, mut write) = stream.into_split();
                let mut head = [0; 4096];
                if tokio::io::AsyncReadExt::read(&mut read, &mut head).await.is_err() {
                    return;
                }
                let _ = write.write_all(head_of_answer).await;
                count.fetch_add(1, Ordering::SeqCst);
                loop {
                    tokio::select! {
                        word = words.recv() => match word {
                            Ok(word) => {
                                let chunk = format!("{:x}\r\n{word}\r\n", word.len());
                                if write.write_all(chunk.as_bytes()).await.is_err() { break }
                            }
                            Err(_) => break,
                        },
                        gone = tokio::io::AsyncReadExt::read(&mut read, &mut head) => {
                            if !gone.is_ok_and(|len| len > 0) { break }
                        }
                    }
                }
                count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    Broadcast { url, say, open }
}

const STREAM: &str = "GET /v3/sessions/x/messages/stream HTTP/1.1\r\nHost: edge\r\n\r\n";

#[tokio::test]
async fn events_pass_one_by_one_as_they_come() {
    let stub = Stub::echo().await;
    let service = broadcast().await;
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &service.url)]).await;
    let mut raw = edge.connect().await;
    raw.send(STREAM).await;
    let (status, headers) = raw.head().await;
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
    for event in ["id: 1\ndata: a\n\n", ": still here\n\n", "id: 2\ndata: b\n\n"] {
        service.say.send(event).unwrap();
        assert_eq!(raw.chunk().await, event.as_bytes());
    }
}

#[tokio::test]
async fn a_reader_that_goes_frees_its_place_at_the_service() {
    let stub = Stub::echo().await;
    let service = broadcast().await;
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &service.url)]).await;
    let mut readers = Vec::new();
    for _ in 0..3 {
        let mut raw = edge.connect().await;
        raw.send(STREAM).await;
        raw.head().await;
        readers.push(raw);
    }
    eventually(|| service.open.load(Ordering::SeqCst) == 3).await;
    readers.clear();
    eventually(|| service.open.load(Ordering::SeqCst) == 0).await;
    eventually(|| edge.running.in_flight() == 0).await;
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_frees_the_service() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
    eventually(|| stub.count() == 1).await;
    drop(raw);
    eventually(|| stub.gone() == 1).await;
}

#[tokio::test]
async fn streams_and_long_polls_are_bounded_for_each_caller() {
    let stub = Stub::start(|arrived| {
        if arrived.line().contains("/pend") { Reaction::Silence } else { Reaction::SayAndStall(STREAM_HEAD.to_vec()) }
    })
    .await;
    let edge = Edge::with(&stub, &[("MAX_STREAMS_PER_CALLER", "2")]).await;
    let mut stream = edge.connect().await;
    stream.send(STREAM).await;
    assert_eq!(stream.head().await.0, 200);
    let mut poll = edge.connect().await;
    poll.send("GET /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    eventually(|| stub.count() == 2).await;
    for request in [STREAM, "GET /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\n\r\n"] {
        let answer = edge.ask(request).await;
        assert_eq!((answer.status, answer.code()), (429, "RATE_LIMITED".to_owned()));
        assert!(answer.text().contains("At most 2 streams and long-polls of one caller may be open"), "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), Some("\"streams\";q=2;qu=\"concurrent-requests\""));
    }
    drop(poll);
    let deadline = Instant::now() + SOON;
    loop {
        let mut raw = edge.connect().await;
        raw.send(STREAM).await;
        if raw.head().await.0 == 200 {
            break;
        }
        assert!(Instant::now() < deadline, "the place was not given back");
    }
}

#[tokio::test]
async fn large_uploads_are_bounded_for_each_caller_and_small_ones_are_not() {
    let stub = Stub::echo().await;
    let slow = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", slow.local_addr().expect("an address"));
    let edge = Edge::with(&stub, &[("MAX_UPLOADS_PER_CALLER", "1"), ("SESSION_STORE_URL", &url)]).await;
    let large = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: edge\r\nContent-Length: 100000\r\n\r\n");
    let mut held = edge.connect().await;
    held.send(large("/v1/sessions")).await;
    held.send("x").await;
    // Its service sees a connection once the body has its place.
    let _connection = slow.accept().await.expect("a connection");
    let refused = edge.ask(&large("/v1/machines")).await;
    assert_eq!((refused.status, refused.code()), (503, "UNAVAILABLE".to_owned()));
    assert!(refused.header("retry-after").is_some());
    let small = edge.ask("POST /v1/machines HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
    assert_eq!(small.status, 200);
    drop(held);
    let deadline = Instant::now() + SOON;
    while edge.ask(&(large("/v1/machines") + &"x".repeat(100_000))).await.status != 200 {
        assert!(Instant::now() < deadline, "the place was not given back");
    }
}

#[tokio::test]
async fn a_stream_may_be_silent_longer_than_any_other_answer() {
    in_time(Duration::from_secs(2), follow_what_is_silent).await;
}

async fn follow_what_is_silent() {
    let stub = Stub::echo().await;
    let service = broadcast().await;
    let variables = [
        ("SESSION_STORE_URL", service.url.as_str()),
        ("UPSTREAM_STALL_MS", "50"),
        ("IDLE_MS", "100"),
        ("UPSTREAM_TIMEOUT_MS", "100"),
    ];
    let edge = Edge::with(&stub, &variables).await;
    let mut raw = edge.connect().await;
    raw.send(STREAM).await;
    raw.head().await;
    let mut byte = [0; 1];
    assert!(
        tokio::time::timeout(Duration::from_millis(400), raw.stream.peek(&mut byte)).await.is_err(),
        "nothing ends it"
    );
    service.say.send("data: x\n\n").unwrap();
    assert_eq!(raw.chunk().await, b"data: x\n\n");
}

/// Resident memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn idle_streams_cost_little_and_give_it_back() {
    const STREAMS: usize = 500;
    let stub = Stub::echo().await;
    let service = broadcast().await;
    let variables =
        [("SESSION_STORE_URL", service.url.as_str()), ("MAX_CONNECTIONS_PER_ADDRESS", "1000"), ("LIMIT_ADDRESS", "0")];
    let edge = Edge::with(&stub, &variables).await;
    let open = async |count: usize| {
        let mut readers = Vec::new();
        for _ in 0..count {
            let mut raw = edge.connect().await;
            raw.send(STREAM).await;
            raw.head().await;
            readers.push(raw);
        }
        readers
    };
    // What the first round leaves behind is there for the second.
    drop(open(STREAMS).await);
    eventually(|| service.open.load(Ordering::SeqCst) == 0).await;
    let before = resident();
    let readers = open(STREAMS).await;
    let during = resident();
    drop(readers);
    eventually(|| service.open.load(Ordering::SeqCst) == 0).await;
    // Client, edge and service are all in this process and not optimised: far below what each alone may take.
    assert!(during.saturating_sub(before) / STREAMS < 64, "{} KiB each", during.saturating_sub(before) / STREAMS);
}
