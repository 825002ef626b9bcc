//! A request is sent once. It goes to the next address only when a connection was refused, and never when it may have had an effect.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use crate::Edge;
use crate::stub::{Reaction, Stub, ok};

#[tokio::test]
async fn no_service_is_503_with_retry_after() {
    let stub = Stub::echo().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [format!("http://{free}"), "http://no-such-name.invalid:80".to_owned()] {
        let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &url)]).await;
        let answer = edge.get("/v1/sessions").await;
        assert_eq!((answer.status, answer.code()), (503, "UNAVAILABLE".to_owned()));
        assert!(answer.header("retry-after").is_some());
        assert_eq!(edge.get("/v1/machines").await.status, 200, "other services go on");
        assert_eq!(edge.get("/readyz").await.status, 200, "and so does the edge");
    }
}

#[tokio::test]
async fn a_request_that_was_taken_is_never_sent_again() {
    let stub = Stub::start(|_| Reaction::SayAndClose(Vec::new())).await;
    let edge = Edge::before(&stub).await;
    for (count, request) in [
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}",
        "DELETE /v1/sessions/x HTTP/1.1\r\nHost: edge\r\n\r\n",
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "GET /v1/public-sessions/t HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\n\r\n",
    ]
    .iter()
    .enumerate()
    {
        let answer = edge.ask(request).await;
        assert_eq!((answer.status, answer.code()), (502, "UPSTREAM_ERROR".to_owned()));
        assert_eq!(stub.count(), count + 1, "{request}");
    }
}

/// Answers the first request on each connection and dies with the second.
async fn dies_with_the_second() -> Stub {
    let asked = AtomicUsize::new(0);
    Stub::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => ok("{}"),
        _ => Reaction::SayAndClose(Vec::new()),
    })
    .await
}

#[tokio::test]
async fn a_read_on_a_connection_that_had_died_is_asked_once_more() {
    let stub = dies_with_the_second().await;
    let edge = Edge::before(&stub).await;
    assert_eq!(edge.get("/v1/sessions").await.status, 200);
    assert_eq!(edge.get("/v1/sessions").await.status, 200, "the second try was on a fresh connection");
    assert_eq!(stub.count(), 3);
}

#[tokio::test]
async fn what_may_have_an_effect_is_not_even_then() {
    for request in [
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "DELETE /v1/sessions/x HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/public-sessions/t HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/public-sessions/t/stream HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/orchestrator/runs/x/pend HTTP/1.1\r\nHost: edge\r\n\r\n",
    ] {
        let stub = dies_with_the_second().await;
        let edge = Edge::before(&stub).await;
        assert_eq!(edge.get("/v1/sessions").await.status, 200);
        assert_eq!(edge.ask(request).await.status, 502, "{request}");
        assert_eq!(stub.count(), 2, "{request}");
    }
}

#[tokio::test]
async fn a_service_that_closes_idle_connections_costs_no_request() {
    let stub = Stub::start(|_| Reaction::SayAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec())).await;
    let edge = Edge::before(&stub).await;
    for done in 1..=5 {
        let answer = edge.ask("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
        assert_eq!(answer.status, 200);
        crate::streams::eventually(|| stub.gone() == done).await;
    }
    assert_eq!(stub.count(), 5);
}

#[tokio::test]
async fn all_addresses_are_used_and_one_that_refuses_is_passed_by() {
    let (one, other) = (Stub::start(|_| ok("1")).await, Stub::start(|_| ok("2")).await);
    let urls = format!("http://{},http://{}", one.address, other.address);
    let edge = Edge::with(&one, &[("SESSION_STORE_URL", &urls)]).await;
    for _ in 0..10 {
        assert_eq!(edge.get("/v1/sessions").await.status, 200);
    }
    assert_eq!((one.count(), other.count()), (5, 5), "in turn");
    drop(other);
    for _ in 0..10 {
        let answer = edge.ask("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
        assert_eq!(answer.status, 200, "a refused connection is no failed request");
    }
}

#[tokio::test]
async fn a_read_that_broke_is_asked_once_more_and_no_further() {
    let stub = Stub::start(|_| Reaction::SayAndClose(Vec::new())).await;
    let edge = Edge::before(&stub).await;
    let answer = edge.get("/v1/sessions").await;
    assert_eq!((answer.status, answer.code()), (502, "UPSTREAM_ERROR".to_owned()));
    assert_eq!(stub.count(), 2);
}

#[tokio::test]
async fn a_service_that_is_about_to_stop_is_avoided() {
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    let (stays, stops) = (Stub::echo().await, Stub::start(|_| Reaction::SayAndClose(LAST.to_vec())).await);
    let urls = format!("http://{},http://{}", stays.address, stops.address);
    let edge = Edge::with(&stays, &[("SESSION_STORE_URL", &urls)]).await;
    for _ in 0..10 {
        assert_eq!(edge.get("/v1/sessions").await.status, 200);
    }
    assert_eq!((stays.count(), stops.count()), (9, 1));
    drop(stays);
    assert_eq!(edge.get("/v1/sessions").await.status, 200, "it is used when there is no other");
}
