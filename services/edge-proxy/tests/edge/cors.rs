//! Web pages: the edge alone answers for them.

use ensemble_chassis::{Clock, Listeners, Vars, start};
use ensemble_edge_proxy::EdgeProxy;

use crate::Edge;
use crate::stub::{Reaction, Stub};

async fn edge() -> (Stub, Edge) {
    let stub = Stub::start(|_| {
        Reaction::Say(
            b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\ncontent-length: 2\r\n\r\n{}"
                .to_vec(),
        )
    })
    .await;
    let variables =
        [("CORS_ALLOWED_ORIGINS", "https://app.example.com"), ("SHARE_BASE_URL", "https://share.example.com/s")];
    let edge = Edge::with(&stub, &variables).await;
    (stub, edge)
}

fn from(origin: &str, line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: edge\r\nOrigin: {origin}\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_preflight_is_answered_by_the_edge() {
    let (stub, edge) = edge().await;
    let ask = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
    for origin in ["https://app.example.com", "https://share.example.com"] {
        let answer = edge.ask(&from(origin, "OPTIONS /v1/sessions", ask)).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some(origin)));
        for header in [
            "Authorization",
            "Content-Type",
            "Idempotency-Key",
            "X-View-Token",
            "X-Voice-Key",
            "X-Request-Id",
            "Last-Event-ID",
            "Range",
            "If-None-Match",
            // A browser that traces adds these two to each call.
            "Traceparent",
            "Tracestate",
        ] {
            let allowed = answer.header("access-control-allow-headers").unwrap();
            assert!(allowed.split(", ").any(|one| one == header), "{header}: {allowed}");
        }
        let methods = answer.header("access-control-allow-methods").unwrap();
        assert!(methods.contains("PATCH") && !methods.contains("PUT"), "{methods}");
        assert_eq!(answer.header("access-control-max-age"), Some("600"));
        assert_eq!(answer.header("vary"), Some("Origin"));
    }
    for origin in ["https://evil.example.com", "null", "http://app.example.com"] {
        let answer = edge.ask(&from(origin, "OPTIONS /v1/sessions", ask)).await;
        assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
        assert_eq!(answer.header("access-control-allow-methods"), None, "{origin}");
    }
    assert_eq!(stub.count(), 0, "no service sees a preflight");
}

#[tokio::test]
async fn answers_and_refusals_may_be_read_by_allowed_pages_only() {
    let (stub, edge) = edge().await;
    let answer = edge.ask(&from("https://app.example.com", "GET /v1/sessions", "")).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(
        answer.header("access-control-expose-headers"),
        Some(
            "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, Content-Range, X-Context-Version, WWW-Authenticate, \
             Location, ETag, Ignored-Members"
        )
    );
    let vary: Vec<&str> =
        answer.headers.iter().filter(|(name, _)| name == "vary").map(|(_, value)| value.as_str()).collect();
    assert_eq!(vary, ["Accept", "Origin"]);
    let refused = edge.ask(&from("https://app.example.com", "GET /nothing", "")).await;
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (404, Some("https://app.example.com")));
    let foreign = edge.ask(&from("https://evil.example.com", "GET /v1/sessions", "")).await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (200, None));
    assert_eq!(stub.count(), 2);
}

#[tokio::test]
async fn without_an_origin_nothing_is_said_but_vary() {
    let (_stub, edge) = edge().await;
    let answer = edge.get("/v1/sessions").await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
    assert!(answer.headers.iter().any(|(name, value)| name == "vary" && value == "Origin"));
    let options = edge.ask("OPTIONS /v1/sessions HTTP/1.1\r\nHost: edge\r\n\r\n").await;
    assert_eq!(options.status, 200, "an OPTIONS that is no preflight is the service's");
}

#[tokio::test]
async fn pages_on_the_readers_own_computer_may_call_unless_it_is_switched_off() {
    let stub = Stub::start(|_| Reaction::Say(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec())).await;
    let ask = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
    let loopback = ["http://127.0.0.1", "http://127.0.0.1:7417", "http://localhost:3000"];
    // An empty variable is one that is not set, as in compose.
    for (variables, is_allowed) in [
        (&[][..], true),
        (&[("CORS_ALLOWED_ORIGINS", "")], true),
        (&[("CORS_ALLOWED_ORIGINS", "none")], false),
        (&[("CORS_ALLOWED_ORIGINS", "https://app.example.com")], false),
    ] {
        let edge = Edge::with(&stub, variables).await;
        for origin in loopback {
            for line in ["OPTIONS /v1/sessions", "GET /v1/sessions"] {
                let answer = edge.ask(&from(origin, line, ask)).await;
                let found = answer.header("access-control-allow-origin");
                assert_eq!(found, is_allowed.then_some(origin), "{line} {variables:?}");
                assert_eq!(answer.header("access-control-allow-credentials"), None, "no cookies are involved");
            }
        }
        for origin in [
            "http://127.0.0.1.evil.example",
            "http://localhost.evil",
            "https://localhost:3000",
            "https://127.0.0.1",
            "null",
        ] {
            let answer = edge.ask(&from(origin, "OPTIONS /v1/sessions", ask)).await;
            assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
            assert_eq!(answer.header("access-control-allow-methods"), None, "{origin}");
        }
    }
}

#[tokio::test]
async fn an_address_of_another_scheme_ends_the_start() {
    for (address, fits) in
        [("ftp://edge.example.com", false), ("edge.example.com", false), ("https://edge.example.com", true)]
    {
        let vars = Vars::from_pairs([("INTERNAL_TOKEN", "internal"), ("PUBLIC_BASE_URL", address)]);
        let started = start::<EdgeProxy>(vars, Listeners::loopback().unwrap(), Clock::system()).await;
        assert_eq!(started.is_ok(), fits, "{address}");
    }
}
