//! What a service gets to see of a request: all that the client may say, and nothing that only the edge may.

use crate::Edge;
use crate::stub::{Reaction, Stub, ok};

#[tokio::test]
async fn paths_and_queries_arrive_unchanged() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in [
        "/v1/sessions",
        "/v3/sessions/x/messages?after=5&limit=50&q=%2e%2F//..",
        "/v1/users/a%20b",
        "/v1/machines/a_b-c?",
    ] {
        assert_eq!(edge.get(path).await.status, 200, "{path}");
        assert_eq!(stub.last().line(), format!("GET {path} HTTP/1.1"));
    }
    let absolute = "GET http://edge/v1/sessions?x=y HTTP/1.1\r\nHost: edge\r\n\r\n";
    assert_eq!(edge.ask(absolute).await.status, 200);
    assert_eq!(stub.last().line(), "GET /v1/sessions?x=y HTTP/1.1");
}

#[tokio::test]
async fn forged_and_hop_by_hop_fields_end_at_the_edge() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    edge.ask(
        "GET /v1/sessions HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, X-Named\r\nKeep-Alive: timeout=5\r\n\
         X-Named: x\r\nTE: trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Authorization: x\r\nProxy-Connection: x\r\n\
         X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Prefix: /x\r\n\
         Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-User-Id: root\r\nX-Internal-Account: root\r\nx_user_id: root\r\n\
         X-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\nX-HTTP-Method-Override: DELETE\r\nVia: x\r\n\
         Authorization: Bearer x\r\nX-View-Token: v\r\nLast-Event-ID: 7\r\ntraceparent: 00-1-2-01\r\nAccept: a\r\nAccept: b\r\n\r\n",
    )
    .await;
    let arrived = stub.last();
    for gone in [
        "connection",
        "keep-alive",
        "x-named",
        "te",
        "upgrade",
        "http2-settings",
        "proxy-authorization",
        "proxy-connection",
        "x-forwarded-prefix",
        "forwarded",
        "x-real-ip",
        "x-user-id",
        "x-internal-account",
        "x_user_id",
        "x-original-url",
        "x-rewrite-url",
        "x-http-method-override",
        "via",
        "transfer-encoding",
        "content-length",
    ] {
        assert_eq!(arrived.header(gone), None, "{gone}");
    }
    assert_eq!(arrived.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(arrived.header("x-forwarded-proto"), Some("http"));
    assert_eq!(arrived.header("x-forwarded-host"), Some("api.example.com"));
    assert_eq!(arrived.header("host"), Some(stub.address.to_string().as_str()));
    for (name, value) in
        [("authorization", "Bearer x"), ("x-view-token", "v"), ("last-event-id", "7"), ("traceparent", "00-1-2-01")]
    {
        assert_eq!(arrived.header(name), Some(value), "{name}");
    }
    assert_eq!(arrived.head.matches("accept: ").count(), 2, "a field may come twice");
    for once in ["x-forwarded-for", "x-forwarded-host", "host", "x-request-id"] {
        assert_eq!(arrived.head.matches(&format!("\r\n{once}: ")).count(), 1, "{once}");
    }
}

#[tokio::test]
async fn trusted_proxies_say_who_the_client_is() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("TRUSTED_PROXIES", "127.0.0.0/8, 10.0.0.0/8")]).await;
    let fields = "X-Forwarded-For: 6.6.6.6, 203.0.113.7, 10.1.1.1\r\nX-Forwarded-Proto: https\r\n";
    edge.ask(&format!("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\n{fields}\r\n")).await;
    assert_eq!(stub.last().header("x-forwarded-for"), Some("203.0.113.7"));
    assert_eq!(stub.last().header("x-forwarded-proto"), Some("https"));
}

#[tokio::test]
async fn bodies_are_framed_again() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let chunked = "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
        2;ext=\"evil\";x\r\nhe\r\n003\r\nllo\r\n0;last\r\n\r\n";
    assert_eq!(edge.ask(chunked).await.status, 200);
    let arrived = stub.last();
    assert_eq!(arrived.body, b"hello");
    assert_eq!(arrived.header("transfer-encoding"), Some("chunked"));
    assert!(!arrived.coded.contains(&b';'), "no extension is forwarded");

    let sized = "POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 0005\r\n\r\nhello";
    assert_eq!(edge.ask(sized).await.status, 200);
    let arrived = stub.last();
    assert_eq!((arrived.body.as_slice(), arrived.header("content-length")), (&b"hello"[..], Some("5")));

    assert_eq!(edge.ask("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 0\r\n\r\n").await.status, 200);
    assert_eq!(stub.last().header("content-length"), Some("0"));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").await;
    assert_eq!(raw.head().await.0, 100);
    raw.send("hello").await;
    assert_eq!(raw.answer().await.status, 200);
    assert_eq!(stub.last().header("expect"), None);
}

#[tokio::test]
async fn request_ids_are_taken_or_made_and_come_back() {
    let stub = Stub::start(|arrived| {
        let id = arrived.header("x-request-id").unwrap_or_default();
        Reaction::Say(format!("HTTP/1.1 200 OK\r\nx-request-id: other-{id}\r\ncontent-length: 0\r\n\r\n").into_bytes())
    })
    .await;
    let edge = Edge::before(&stub).await;
    let with = |id: &str| format!("GET /v1/sessions HTTP/1.1\r\nHost: edge\r\nX-Request-Id: {id}\r\n\r\n");
    let answer = edge.ask(&with("abc.DEF_1-2")).await;
    assert_eq!(answer.header("x-request-id"), Some("abc.DEF_1-2"));
    assert_eq!(stub.last().header("x-request-id"), Some("abc.DEF_1-2"));
    for bad in ["a b", "a;b", &"x".repeat(200), ""] {
        let answer = edge.ask(&with(bad)).await;
        let made = answer.header("x-request-id").unwrap().to_owned();
        assert!(made.len() > 32 && made != bad, "{bad:?}");
        assert_eq!(stub.last().header("x-request-id"), Some(made.as_str()));
    }
    let own = edge.ask("GET /v1/version HTTP/1.1\r\nHost: edge\r\nX-Request-Id: mine\r\n\r\n").await;
    assert_eq!(own.header("x-request-id"), Some("mine"), "the edge's own pages too");
}

#[tokio::test]
async fn paths_without_a_service_are_404() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in [
        "/nothing",
        "/v1",
        "/v1/sessionsx",
        "/metrics",
        "/rpc/ensemble.identity.v1.Keys/Snapshot",
        "/v1/public-sessions",
    ] {
        let answer = edge.get(path).await;
        assert_eq!((answer.status, answer.code()), (404, "NOT_FOUND".to_owned()), "{path}");
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    let large = vec![b'y'; 16 << 20];
    let reply = large.clone();
    let stub = Stub::start(move |arrived| {
        assert!(arrived.body.iter().all(|byte| *byte == b'x'));
        let head =
            format!("HTTP/1.1 200 OK\r\nx-length: {}\r\ncontent-length: {}\r\n\r\n", arrived.body.len(), reply.len());
        Reaction::Say([head.into_bytes(), reply.clone()].concat())
    })
    .await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 16777216\r\n\r\n").await;
    raw.send(vec![b'x'; 16 << 20]).await;
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.header("x-length")), (200, Some("16777216")));
    assert!(answer.body == large);
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_body_counts() {
    let stub = Stub::start(|_| ok("{}")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut piece = [0; 1024];
            let _ = stream.read(&mut piece).await;
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno").await;
            while stream.read(&mut piece).await.is_ok_and(|len| len > 0) {}
        }
    });
    let edge = Edge::with(&stub, &[("SESSION_STORE_URL", &format!("http://{address}"))]).await;
    let mut raw = edge.connect().await;
    raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 1000000\r\n\r\nhello").await;
    let answer = raw.answer().await;
    assert_eq!((answer.status, answer.text().as_str(), answer.header("connection")), (403, "no", Some("close")));
}

#[tokio::test]
async fn connections_are_used_again_by_both_sides() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let mut raw = edge.connect().await;
    for _ in 0..5 {
        raw.send("POST /v1/sessions HTTP/1.1\r\nHost: edge\r\nContent-Length: 2\r\n\r\n{}").await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, None));
    }
    assert!(stub.seen().iter().all(|arrived| arrived.connection == stub.last().connection));
}

#[tokio::test]
async fn a_path_leads_to_its_service_however_it_is_encoded_and_arrives_unchanged() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for asked in
        ["/v1/machines/%6Dy%2Dlaptop?x=%6D", "/v1/machines/a%20b%3Ac?y", "/v1/machines/%256d", "/%761/sessions"]
    {
        assert_eq!(edge.get(asked).await.status, 200, "{asked}");
        assert_eq!(stub.last().line(), format!("GET {asked} HTTP/1.1"));
    }
    let absolute = edge.ask("GET http://edge/v1/%73essions?z HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    assert_eq!((absolute.status, stub.last().line()), (200, "GET /v1/%73essions?z HTTP/1.1"));
}

#[tokio::test]
async fn metrics_name_the_prefix_and_never_the_path() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in ["/v1/public-sessions/secret-link", "/v1/orchestrator/runs/secret-run", "/nothing/secret"] {
        edge.get(path).await;
    }
    let mut internal = crate::raw::Raw::connect(edge.running.internal_addr).await;
    internal.send(b"GET /metrics HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    let metrics = internal.answer().await.text();
    for route in ["/v1/public-sessions/", "/v1/orchestrator/", "unmatched"] {
        assert!(metrics.contains(&format!(r#"route="{route}""#)), "{route}: {metrics}");
    }
    assert!(!metrics.contains("secret"), "{metrics}");
}
