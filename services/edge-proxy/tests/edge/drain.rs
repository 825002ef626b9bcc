//! The end of a replica: requests that arrived are answered, streams and long-polls end with a hint to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ensemble_testkit::in_time;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::Edge;
use crate::raw::Raw;
use crate::streams::{TEXT_HEAD, broadcast, broadcast_as, eventually};
use crate::stub::{Reaction, Stub};

#[tokio::test]
async fn readiness_fails_first_and_connections_are_asked_to_end() {
    in_time(Duration::from_secs(3), drain_with_a_delay).await;
}

async fn drain_with_a_delay() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("DRAIN_DELAY_MS", "1000")]).await;
    let address = edge.running.public_addr;
    let mut kept = edge.connect().await;
    kept.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    assert_eq!(kept.answer().await.header("connection"), None);
    let stopping = tokio::spawn(edge.running.stop());
    let deadline = Instant::now() + Duration::from_millis(900);
    loop {
        let mut raw = Raw::connect(address).await;
        raw.send("GET /readyz HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        let answer = raw.answer().await;
        if answer.status == 503 {
            assert_eq!(answer.code(), "UNAVAILABLE");
            break;
        }
        assert!(Instant::now() < deadline);
    }
    kept.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    let answer = kept.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "still served");
    assert_eq!(kept.until_closed().await, b"");
    assert!(stopping.await.unwrap(), "nothing had to be cut off");
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn a_request_in_flight_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &url)]).await;
    let address = edge.running.public_addr;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    let (mut service, _) = listener.accept().await.unwrap();
    let stopping = tokio::spawn(edge.running.stop());
    let deadline = Instant::now() + crate::raw::SOON;
    while TcpStream::connect(address).await.is_ok() {
        assert!(Instant::now() < deadline);
    }
    service.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate").await.unwrap();
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.text().as_str(), answer.header("connection")), (200, "late", Some("close")));
    assert!(stopping.await.unwrap());
}

#[tokio::test]
async fn streams_end_between_events_with_a_hint() {
    let stub = Stub::echo().await;
    let service = broadcast().await;
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &service.url)]).await;
    let mut between = edge.connect().await;
    between.send("GET /v3/sessions/x/messages/stream HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    between.head().await;
    service.say.send("data: half").unwrap();
    assert_eq!(between.chunk().await, b"data: half");
    let stopping = tokio::spawn(edge.running.stop());
    let mut byte = [0; 1];
    assert!(
        tokio::time::timeout(Duration::from_millis(100), between.stream.peek(&mut byte)).await.is_err(),
        "an event is not cut"
    );
    service.say.send(" and half\n\n").unwrap();
    assert_eq!(between.chunk().await, b" and half\n\n");
    assert_eq!(between.chunk().await, b"retry: 1000\n\n");
    assert_eq!(between.chunk().await, b"", "the stream ends as a stream ends");
    assert!(stopping.await.unwrap(), "nothing had to be cut off");
}

#[tokio::test]
async fn endless_text_ends_as_a_body_ends() {
    let stub = Stub::echo().await;
    let service = broadcast_as(TEXT_HEAD).await;
    let edge = Edge::with(&stub, &[("ORCHESTRATOR_URL", &service.url)]).await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/orchestrator/runs/x/tasks/y/output?follow=true HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    raw.head().await;
    service.say.send("half a li").unwrap();
    assert_eq!(raw.chunk().await, b"half a li");
    let stopping = tokio::spawn(edge.running.stop());
    assert_eq!(raw.chunk().await, b"", "the body ends as a body ends");
    assert!(stopping.await.unwrap(), "nothing had to be cut off");
}

#[tokio::test]
async fn long_polls_end_with_a_request_to_poll_again() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/orchestrator/leases HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
    eventually(|| stub.count() == 1).await;
    let stopping = tokio::spawn(edge.running.stop());
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.code()), (503, "UNAVAILABLE".to_owned()));
    assert!(answer.header("retry-after").is_some());
    assert!(stopping.await.unwrap());
}

/// Asks again and again, on connections that are kept as long as the edge keeps them. A client that heeds the drain ends
/// with the first `Connection: close`, as a load balancer does when readiness fails; others go on until connections are
/// refused. Everything must be answered, with one exception: the kernel resets a connection that the server has not accepted
/// when the listener closes.
async fn ask(address: std::net::SocketAddr, heeds: bool, answered: Arc<AtomicUsize>) {
    while let Some(mut raw) = Raw::connect_or_refused(address).await {
        loop {
            let Some(answer) = raw.ask_or_reset("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await else {
                assert!(!heeds, "a request was lost");
                assert!(TcpStream::connect(address).await.is_err(), "reset before the listener closed");
                return;
            };
            assert_eq!(answer.status, 200);
            answered.fetch_add(1, Ordering::SeqCst);
            if answer.header("connection") == Some("close") {
                if heeds {
                    return;
                }
                break;
            }
        }
    }
}

async fn drain_under_load(delay_ms: &str, heed: bool) {
    let stub = Stub::echo().await;
    let variables = [("DRAIN_DELAY_MS", delay_ms), ("LIMIT_ADDRESS", "0"), ("WORKERS", "2")];
    let edge = Edge::with(&stub, &variables).await;
    let address = edge.running.public_addr;
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..16).map(|_| tokio::spawn(ask(address, heed, Arc::clone(&answered)))).collect();
    eventually(|| answered.load(Ordering::SeqCst) > 200).await;
    assert!(edge.running.stop().await, "nothing had to be cut off");
    for client in clients {
        client.await.expect("every request was answered");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_edge_drains_under_load() {
    in_time(Duration::from_secs(5), async || drain_under_load("1000", true).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_until_the_listener_closes() {
    drain_under_load("0", false).await;
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_after_the_grace() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::with(&stub, &[("DRAIN_GRACE_MS", "300")]).await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    eventually(|| stub.count() == 1).await;
    let is_clean = Arc::new(AtomicBool::new(true));
    is_clean.store(edge.running.stop().await, Ordering::SeqCst);
    assert!(!is_clean.load(Ordering::SeqCst));
    assert_eq!(raw.until_closed().await, b"");
}
