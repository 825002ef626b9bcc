//! What a client gets to see of a service's answer.

use crate::Edge;
use crate::stub::{Reaction, Stub};

async fn answering(text: &'static str) -> (Stub, Edge) {
    let stub = Stub::start(move |_| Reaction::SayAndClose(text.as_bytes().to_vec())).await;
    let edge = Edge::before(&stub).await;
    (stub, edge)
}

#[tokio::test]
async fn what_concerns_the_edge_alone_does_not_come_down() {
    let (_stub, edge) = answering(
        "HTTP/1.1 201 Created\r\nServer: x/1\r\nX-Powered-By: x\r\nConnection: close, X-Named\r\nX-Named: x\r\nKeep-Alive: x\r\n\
         Access-Control-Allow-Origin: *\r\nX-Internal-New-Account: 1\r\nContent-Type: application/json\r\nETag: \"x\"\r\n\
         Cache-Control: private\r\nSet-X: a\r\nSet-X: b\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    let answer = edge.get("/v1/sessions").await;
    assert_eq!((answer.status, answer.text().as_str()), (201, "{}"));
    for gone in [
        "server",
        "x-powered-by",
        "x-named",
        "keep-alive",
        "access-control-allow-origin",
        "x-internal-new-account",
        "connection",
    ] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    for (name, value) in [
        ("content-type", "application/json"),
        ("etag", "\"x\""),
        ("cache-control", "private"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    assert_eq!(answer.headers.iter().filter(|(name, _)| name == "set-x").count(), 2);
}

#[tokio::test]
async fn bodies_of_every_framing_arrive() {
    for (text, body) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n1\r\n!\r\n0\r\nT: x\r\n\r\n", "hello!"),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold", "old"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
    ] {
        let (_stub, edge) = answering(text).await;
        let answer = edge.get("/v1/sessions").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, body), "{text:?}");
    }
}

#[tokio::test]
async fn head_and_not_modified_have_no_body() {
    let stub = Stub::start(|arrived| {
        let status = if arrived.line().starts_with("HEAD") { "200 OK" } else { "304 Not Modified" };
        Reaction::Say(format!("HTTP/1.1 {status}\r\nContent-Length: 1234\r\nETag: x\r\n\r\n").into_bytes())
    })
    .await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    for _ in 0..2 {
        raw.send("HEAD /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        let answer = raw.answer_to("HEAD").await;
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("1234")));
        raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        assert_eq!(raw.answer().await.status, 304);
    }
    assert_eq!(stub.count(), 4);
}

#[tokio::test]
async fn answers_that_are_none_are_502() {
    for text in
        ["", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "HTTP/1.1 200"]
    {
        let (_stub, edge) = answering(text).await;
        let answer = edge.get("/v1/sessions").await;
        assert_eq!((answer.status, answer.code()), (502, "UPSTREAM_ERROR".to_owned()), "{text:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_complete() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
    ] {
        let (_stub, edge) = answering(text).await;
        let mut raw = edge.connect().await;
        raw.send("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
        let all = raw.until_closed().await;
        // Whatever of it was out before it broke: neither the last chunk nor all of the length.
        assert!(!all.ends_with(b"0\r\n\r\n") && all.len() < 100 + 400, "{text:?}: {}", all.escape_ascii());
        let body = all.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| all.len() - end - 4);
        assert!(body < 100, "{text:?}");
    }
}

#[tokio::test]
async fn clients_of_http_1_0_get_no_chunks() {
    let (_stub, edge) = answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").await;
    let mut raw = edge.connect().await;
    raw.send("GET /v1/sessions HTTP/1.0\r\nHost: edge\r\nConnection: keep-alive\r\n\r\n").await;
    let all = String::from_utf8(raw.until_closed().await).unwrap();
    assert!(all.starts_with("HTTP/1.0 200 ") && all.ends_with("\r\n\r\nhello"), "{all}");
    assert!(!all.contains("chunked") && !all.contains("keep-alive"), "{all}");
}
