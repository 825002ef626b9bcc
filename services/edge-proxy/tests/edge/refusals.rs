//! What must never reach a service: each of these would be understood in two ways by two readers.

use tokio::io::AsyncWriteExt;

use crate::Edge;
use crate::stub::Stub;

/// Requests that two readers could understand in two ways.
const AMBIGUOUS: &[&str] = &[
    // Line ends
    "GET /v1/sessions HTTP/1.1\nHost: edge\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX: y\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX: a\rb\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\rHost: edge\r\n\r\n",
    "\r\nGET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "\nGET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    // Request lines
    "GET  /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions  HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET\t/v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions HTTP/2.0\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions HTTP/1.10\r\nHost: edge\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "G@T /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    // Fields
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX: a\r\n folded\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX : y\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\n Host: edge\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n: y\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX: \0\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX\0: y\r\n\r\n",
    // Hosts
    "GET /v1/sessions HTTP/1.1\r\n\r\n",
    "GET /v1/sessions HTTP/1.0\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost:\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nhost: other\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: a/b@c\r\n\r\n",
    "GET /v1/sessions HTTP/1.1\r\nHost: edge, other\r\n\r\n",
    "GET http://other/v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET http://user@edge/v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    // Lengths
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5, 5\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: +5\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 0x5\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: -5\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: identity\r\n\r\nhello",
    "POST /v1/sessions HTTP/1.0\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
    // Paths
    "GET //v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1//sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/machines/../sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/.. HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/./sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/%2e%2e/machines HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/%2E HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions%2fx HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions%5cx HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions\\x HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/%00 HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/%0d%0a HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions/%zz HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions#x HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET /v1/sessions?a b HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET * HTTP/1.1\r\nHost: edge\r\n\r\n",
    "GET v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
    // Upgrades to protocols that are not spoken here
    "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
];

/// Sends `request`, whole or byte by byte. It must be refused before a service sees it, or reach it in the one form that
/// every reader understands alike.
async fn refused_or_normalised(edge: &Edge, stub: &Stub, request: &str, is_cut: bool) {
    let before = stub.count();
    let mut raw = edge.connect().await;
    if is_cut {
        for byte in request.as_bytes() {
            raw.send([*byte]).await;
            tokio::task::yield_now().await;
        }
    } else {
        raw.send(request).await;
    }
    let answer = raw.answer().await;
    if answer.status == 200 {
        let arrived = stub.last();
        let method = request.trim_start().split([' ', '\t']).next().unwrap();
        assert_eq!(stub.count(), before + 1, "{request:?}");
        assert_eq!(arrived.line(), format!("{method} /v1/sessions HTTP/1.1"), "{request:?}");
        assert_eq!(arrived.head.to_lowercase().matches("\r\nhost: ").count(), 1, "{request:?}: {}", arrived.head);
        assert!(arrived.head.split("\r\n").all(|line| !line.contains(['\r', '\n', '\0'])), "{:?}", arrived.head);
        assert!(arrived.body.is_empty() || arrived.body == b"hello", "{request:?}: {:?}", arrived.body);
    } else {
        assert!((400..500).contains(&answer.status), "{request:?}: {answer:?}");
        assert_eq!(stub.count(), before, "{request:?}");
        assert_eq!(raw.until_closed().await, b"", "{request:?}");
    }
}

#[tokio::test]
async fn ambiguous_requests_are_refused_or_normalised_however_they_are_cut() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for request in AMBIGUOUS {
        refused_or_normalised(&edge, &stub, request, false).await;
    }
    for request in AMBIGUOUS.iter().step_by(5) {
        refused_or_normalised(&edge, &stub, request, true).await;
    }
}

#[tokio::test]
async fn what_the_edge_itself_refuses_says_why() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for request in [
        "GET //v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/sessions/%2e%2e/machines HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET http://other/v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n",
        "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let answer = edge.ask(request).await;
        assert_eq!((answer.status, answer.code()), (400, "INVALID_ARGUMENT".to_owned()), "{request:?}");
        assert_eq!(answer.header("connection"), Some("close"), "{request:?}");
        assert!(answer.json()["requestId"].as_str().is_some_and(|id| answer.header("x-request-id") == Some(id)));
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn chunks_that_readers_disagree_on_are_refused_or_normalised() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for body in [
        "5;a=\"b\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        "5\r\nhello\r\n0\r\nHost: evil\r\n\r\n",
        "\r\n",
        "-1\r\n",
    ] {
        let mut raw = edge.connect().await;
        let before = stub.count();
        raw.send(format!("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).await;
        raw.stream.shutdown().await.unwrap();
        let answer = raw.until_closed().await;
        let is_done = answer.starts_with(b"HTTP/1.1 200 ");
        assert!(
            is_done || answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{body:?}: {}",
            answer.escape_ascii()
        );
        if stub.count() > before {
            let arrived = stub.last();
            assert_eq!((stub.count(), arrived.body.as_slice()), (before + 1, &b"hello"[..]), "{body:?}");
            assert!(!arrived.coded.contains(&b';'), "{body:?}: {:?}", arrived.coded);
            assert!(
                !arrived.head.contains("evil") && !arrived.coded.windows(4).any(|part| part == b"evil"),
                "{body:?}"
            );
        }
    }
}

#[tokio::test]
async fn nothing_after_a_refusal_is_looked_at() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    let good = "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n";
    raw.send(format!("{good}{good}GET //x HTTP/1.1\r\nHost: edge\r\n\r\n{good}")).await;
    assert_eq!(raw.answer().await.status, 200);
    assert_eq!(raw.answer().await.status, 200);
    assert_eq!(raw.answer().await.status, 400);
    let rest = raw.until_closed().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400 "), "{}", rest.escape_ascii());
    assert_eq!(stub.count(), 2);
}

#[tokio::test]
async fn a_body_cannot_become_a_request() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let smuggled = "GET /v1/account HTTP/1.1\r\nHost: edge\r\n\r\n";
    let mut raw = edge.connect().await;
    raw.send(format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: {}\r\n\r\n{smuggled}",
        smuggled.len()
    ))
    .await;
    assert_eq!(raw.answer().await.status, 200);
    raw.send(format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n",
        smuggled.len()
    ))
    .await;
    assert_eq!(raw.answer().await.status, 200);
    let seen = stub.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|arrived| arrived.body == smuggled.as_bytes()));
}

#[tokio::test]
async fn methods_that_a_proxy_must_not_honour_are_405() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for method in ["CONNECT", "TRACE", "REFUSED", "PROPFIND", "get"] {
        let answer = edge.ask(&format!("{method} /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n")).await;
        assert_eq!((answer.status, answer.code()), (405, "METHOD_NOT_ALLOWED".to_owned()), "{method}");
        assert!(answer.header("allow").is_some_and(|allow| allow.contains("GET")));
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn sizes_are_bounded_before_anything_is_read() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("MAX_BODY_BYTES", "1000")]).await;
    let many: String = (0..70).map(|n| format!("X-{n}: y\r\n")).collect();
    let large = format!("X: {}\r\n", "y".repeat(40_000));
    for (request, status, code) in [
        (format!("GET /{} HTTP/1.1\r\nHost: edge\r\n\r\n", "a".repeat(9_000)), 414, "URI_TOO_LONG"),
        (format!("GET / HTTP/1.1\r\nHost: edge\r\n{many}\r\n"), 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (format!("GET / HTTP/1.1\r\nHost: edge\r\n{large}\r\n"), 431, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (
            "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 1001\r\n\r\n".to_owned(),
            413,
            "PAYLOAD_TOO_LARGE",
        ),
        (
            format!(
                "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n",
                "x".repeat(1001)
            ),
            413,
            "PAYLOAD_TOO_LARGE",
        ),
    ] {
        let answer = edge.ask(&request).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", &request[..60.min(request.len())]);
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn requests_sent_ahead_are_answered_each_by_what_it_was() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let get = "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n";
    let post = "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\n\r\nhello";
    let last = "GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n";
    for is_cut in [false, true] {
        let mut raw = edge.connect().await;
        let all = format!("{get}{post}{get}{last}");
        if is_cut {
            for piece in all.as_bytes().chunks(7) {
                raw.send(piece).await;
                tokio::task::yield_now().await;
            }
        } else {
            raw.send(all).await;
        }
        for method in ["GET", "POST", "GET"] {
            let answer = raw.answer().await;
            assert_eq!(answer.status, 200, "{method}");
            assert_eq!(answer.header("content-length"), Some("2"), "{method}");
        }
        assert_eq!(raw.answer().await.header("connection"), Some("close"));
        assert_eq!(raw.until_closed().await, b"");
    }
    assert_eq!(stub.count(), 8);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_400() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for framing in ["Content-Length: 100\r\n\r\n", "Content-Length: 100\r\n\r\nhello"] {
        let mut raw = edge.connect().await;
        raw.send(format!("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\n{framing}")).await;
        raw.stream.shutdown().await.unwrap();
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.code()), (400, "INVALID_ARGUMENT".to_owned()), "{framing}");
        assert_eq!((answer.header("connection"), raw.until_closed().await), (Some("close"), Vec::new()));
    }
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhello").await;
    raw.stream.shutdown().await.unwrap();
    raw.until_closed().await;
    assert_eq!(stub.count(), 0, "no service sees half a request");
    crate::streams::eventually(|| edge.running.in_flight() == 0).await;
}
