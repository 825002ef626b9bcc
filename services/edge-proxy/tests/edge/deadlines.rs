//! Neither a slow client nor a slow service holds a connection for ever.

use std::time::{Duration, Instant};

use ensemble_testkit::in_time;
use tokio::io::AsyncReadExt;

use crate::Edge;
use crate::raw::SOON;
use crate::stub::{Reaction, Stub, ok};

#[tokio::test]
async fn a_slow_head_is_408() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("HEAD_DEADLINE_MS", "200")]).await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: ed").await;
    assert_eq!(raw.answer().await.status, 408);
    assert_eq!(raw.until_closed().await, b"");
}

#[tokio::test]
async fn a_head_that_drips_is_408_all_the_same() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("HEAD_DEADLINE_MS", "300")]).await;
    let started = Instant::now();
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n").await;
    let mut seen = [0; 1];
    // Each field comes in time for itself; all of them together do not.
    while tokio::time::timeout(Duration::from_millis(30), raw.stream.peek(&mut seen)).await.is_err() {
        raw.send("X: y\r\n").await;
        assert!(started.elapsed() < SOON);
    }
    assert_eq!(raw.answer().await.status, 408);
    assert!(started.elapsed() >= Duration::from_millis(250));
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("HEAD_DEADLINE_MS", "200")]).await;
    let mut silent = edge.connect().await;
    assert!(silent.until_closed().await.starts_with(b"HTTP/1.1 408 "));
    let edge = Edge::with(&stub, &[("IDLE_MS", "500")]).await;
    let mut used = edge.connect().await;
    let since = Instant::now();
    used.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    assert_eq!(used.answer().await.status, 200);
    assert_eq!(used.until_closed().await, b"");
    assert!(since.elapsed() >= Duration::from_millis(200), "it may be used again for a while");
}

#[tokio::test]
async fn a_stalled_body_is_408_and_the_service_is_let_go() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("BODY_TIMEOUT_MS", "200")]).await;
    for framing in ["Content-Length: 100\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n64\r\nhello"] {
        let mut raw = edge.connect().await;
        raw.send(format!("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\n{framing}")).await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.code()), (408, "REQUEST_TIMEOUT".to_owned()));
        // actix waits for the end of a chunked body even when it has answered with `Connection: close`.
        if framing.starts_with("Content-Length") {
            assert_eq!(raw.until_closed().await, b"");
        }
    }
    crate::streams::eventually(|| stub.gone() == 1).await;
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn a_body_below_the_least_rate_is_408() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("BODY_TIMEOUT_MS", "200"), ("BODY_MIN_RATE", "1000")]).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 100000\r\n\r\n").await;
    let started = Instant::now();
    let mut seen = [0; 1];
    // One byte in 20 ms is 50 a second.
    while tokio::time::timeout(Duration::from_millis(20), raw.stream.peek(&mut seen)).await.is_err() {
        raw.send("x").await;
        assert!(started.elapsed() < SOON);
    }
    assert_eq!(raw.answer().await.status, 408);
}

#[tokio::test]
async fn a_body_at_a_fair_rate_may_take_its_time() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("BODY_TIMEOUT_MS", "200"), ("BODY_MIN_RATE", "10")]).await;
    let mut raw = edge.connect().await;
    // A slow machine needs time, too: these bytes are worth 200 seconds.
    let begin =
        format!("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 4000\r\n\r\n{}", "x".repeat(2_000));
    raw.send(begin).await;
    let mut beat = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..20 {
        beat.tick().await;
        raw.send([b'x'; 100]).await;
    }
    assert_eq!(raw.answer().await.status, 200);
    assert_eq!(stub.last().body.len(), 4000);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let large = vec![b'x'; 32 << 20];
    let answer = [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", large.len()).into_bytes(), large].concat();
    let stub = Stub::start(move |_| Reaction::Say(answer.clone())).await;
    let edge = Edge::with(&stub, &[("SEND_STALL_MS", "200")]).await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    crate::streams::eventually(|| stub.gone() == 1).await;
    let mut rest = Vec::new();
    let _ = raw.stream.read_to_end(&mut rest).await;
    assert!(rest.len() < 32 << 20, "the answer was cut");
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_504() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::with(&stub, &[("UPSTREAM_TIMEOUT_MS", "200"), ("LONG_POLL_TIMEOUT_MS", "600")]).await;
    let answer = edge.get("/v1/sessions").await;
    assert_eq!((answer.status, answer.code()), (504, "UPSTREAM_TIMEOUT".to_owned()));
    let since = Instant::now();
    let answer =
        edge.ask("POST /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
    assert_eq!(answer.status, 504);
    assert!(since.elapsed() >= Duration::from_millis(500), "a long-poll may take longer");
    crate::streams::eventually(|| stub.gone() == 2).await;
}

#[tokio::test]
async fn a_service_that_begins_its_head_and_stops_is_504() {
    let stub = Stub::start(|_| Reaction::SayAndStall(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec())).await;
    let edge = Edge::with(&stub, &[("UPSTREAM_TIMEOUT_MS", "200")]).await;
    assert_eq!(edge.get("/v1/sessions").await.status, 504);
}

#[tokio::test]
async fn a_service_that_stops_within_its_answer_ends_the_connection() {
    let stub =
        Stub::start(|_| Reaction::SayAndStall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello".to_vec())).await;
    let edge = Edge::with(&stub, &[("UPSTREAM_STALL_MS", "200")]).await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    assert_eq!(raw.head().await.0, 200);
    assert_eq!(raw.until_closed().await, b"hello", "what is cut does not look complete");
}

#[tokio::test]
async fn a_slow_upload_does_not_count_as_a_slow_service() {
    // The service has 200 ms to answer, for a slow machine, too.
    in_time(Duration::from_secs(2), upload_slowly).await;
}

async fn upload_slowly() {
    let stub = Stub::start(|arrived| ok(&arrived.body.len().to_string())).await;
    let edge = Edge::with(&stub, &[("UPSTREAM_TIMEOUT_MS", "200")]).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 10\r\n\r\n").await;
    let mut beat = tokio::time::interval(Duration::from_millis(60));
    for _ in 0..10 {
        beat.tick().await;
        raw.send("x").await;
    }
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "10"));
}

#[tokio::test]
async fn a_long_poll_may_take_longer_however_its_path_is_written() {
    let stub = Stub::start(|_| Reaction::Silence).await;
    let edge = Edge::with(&stub, &[("UPSTREAM_TIMEOUT_MS", "100"), ("LONG_POLL_TIMEOUT_MS", "700")]).await;
    for path in ["/v1/orchestrator/%6ceases", "/v1/orchestrator/runs/x/pen%64"] {
        let since = Instant::now();
        assert_eq!(edge.get(path).await.status, 504);
        assert!(since.elapsed() >= Duration::from_millis(600), "{path}: {:?}", since.elapsed());
    }
}
