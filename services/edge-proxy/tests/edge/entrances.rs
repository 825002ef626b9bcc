//! The listeners of `ensemble up`: which names they answer to, and whom they count.

use std::net::{SocketAddr, TcpListener};

use ensemble_chassis::Listeners;

use crate::Edge;
use crate::raw::{Answer, Raw};
use crate::stub::Stub;

/// The public name of the server.
pub(crate) const NAME: &str = "ensemble.example.com";

/// An edge that listens for this computer, as that of `ensemble up` does.
pub(crate) async fn of_up(stub: &Stub, variables: &[(&str, &str)]) -> Edge {
    behind_proxy(stub, variables).await.0
}

/// The same, and its address for a proxy on this computer.
async fn behind_proxy(stub: &Stub, variables: &[(&str, &str)]) -> (Edge, SocketAddr) {
    let mut listeners = Listeners::loopback().unwrap();
    let proxied = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = proxied.local_addr().unwrap();
    listeners.proxied = Some(proxied);
    listeners.entrances.loopback = Some(vec!["127.0.0.1".to_owned(), NAME.to_owned()]);
    listeners.entrances.proxy = Some((at, NAME.to_owned()));
    (Edge::on(listeners, &format!("http://{}", stub.address), variables).await, at)
}

/// What a proxy gets for a request of this caller.
async fn carried(at: SocketAddr, line: &str, caller: &str) -> Answer {
    ask(at, &format!("{line} HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-For: {caller}\r\nContent-Length: 0\r\n\r\n")).await
}

async fn ask(at: SocketAddr, request: &str) -> Answer {
    let mut raw = Raw::connect(at).await;
    raw.send(request).await;
    raw.answer().await
}

fn get(host: &str, fields: &str) -> String {
    format!("GET /v1/sessions HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")
}

#[tokio::test]
async fn the_loopback_listener_answers_to_no_foreign_name() {
    let stub = Stub::echo().await;
    let edge = of_up(&stub, &[]).await;
    for host in ["localhost", "127.0.0.1:8080", "[::1]:1", NAME, "ENSEMBLE.example.com:443"] {
        assert_eq!(edge.ask(&get(host, "")).await.status, 200, "{host}");
    }
    let seen = stub.count();
    for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "192.0.2.1", "0.0.0.0:8080", "[::2]"] {
        for request in [get(host, ""), get(host, "Origin: http://localhost\r\nX-Forwarded-Host: localhost\r\n")] {
            let refused = edge.ask(&request).await;
            assert_eq!((refused.status, refused.code()), (421, "MISDIRECTED_REQUEST".to_owned()), "{request}");
            assert_eq!(refused.header("connection"), Some("close"), "{request}");
        }
        let page = edge.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n")).await;
        assert_eq!(page.status, 421, "{host}");
        let preflight = format!(
            "OPTIONS /v1/auth HTTP/1.1\r\nHost: {host}\r\nOrigin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        );
        assert_eq!(edge.ask(&preflight).await.status, 421, "{host}");
    }
    assert_eq!(stub.count(), seen, "no service sees any of them");
    let absolute = "GET http://evil.example/v1/sessions HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(edge.ask(absolute).await.status, 421);
}

#[tokio::test]
async fn no_forwarding_field_counts_on_the_loopback_listener() {
    let stub = Stub::echo().await;
    let edge = of_up(&stub, &[("TRUSTED_PROXIES", "127.0.0.0/8"), ("LIMIT_SIGN_IN", "2")]).await;
    let fields = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nForwarded: for=192.0.2.7\r\n";
    let answer = edge.ask(&get("localhost", fields)).await;
    assert_eq!((answer.status, answer.header("strict-transport-security")), (200, None));
    assert_eq!(stub.last().header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(stub.last().header("x-forwarded-proto"), Some("http"));
    // A caller who writes another address each time has one share all the same.
    for (number, status) in [200, 200, 429].into_iter().enumerate() {
        let fields = format!("X-Forwarded-For: 192.0.2.{number}\r\nContent-Length: 0\r\n");
        let sign_in = get("localhost", &fields).replace("GET /v1/sessions", "POST /v1/auth");
        assert_eq!(edge.ask(&sign_in).await.status, status, "{number}");
    }
}

#[tokio::test]
async fn the_listener_of_a_proxy_takes_the_last_hop_and_the_public_name() {
    let stub = Stub::echo().await;
    // Whom others trust says nothing here: a caller could have written all hops but the last one.
    let (edge, proxy) = behind_proxy(&stub, &[("TRUSTED_PROXIES", "0.0.0.0/0")]).await;
    for (fields, caller) in [
        ("X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
        ("X-Forwarded-For: 6.6.6.6, 127.0.0.1\r\n", "127.0.0.1"),
        ("X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.2\r\n", "192.0.2.2"),
        ("X-Forwarded-For: 2001:db8::1\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\n", "2001:db8::1"),
        ("X-Forwarded-For: 192.0.2.3\r\nX-Internal-Entrance: local\r\n", "192.0.2.3"),
    ] {
        assert_eq!(ask(proxy, &get(NAME, fields)).await.status, 200, "{fields}");
        let arrived = stub.last();
        assert_eq!(arrived.header("x-forwarded-for"), Some(caller), "{fields}");
        assert_eq!(arrived.header("x-internal-entrance"), Some("proxy"), "{fields}");
    }
    let seen = stub.count();
    for (host, fields, status, code) in [
        (NAME, "", 400, "INVALID_ARGUMENT"),
        (NAME, "Forwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n", 400, "INVALID_ARGUMENT"),
        (NAME, "X-Forwarded-For: 192.0.2.1, unknown\r\n", 400, "INVALID_ARGUMENT"),
        (NAME, "X-Forwarded-For:\r\n", 400, "INVALID_ARGUMENT"),
        ("localhost", "X-Forwarded-For: 192.0.2.1\r\n", 421, "MISDIRECTED_REQUEST"),
        ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", 421, "MISDIRECTED_REQUEST"),
        ("evil.example", "X-Forwarded-For: 192.0.2.1\r\n", 421, "MISDIRECTED_REQUEST"),
    ] {
        let refused = ask(proxy, &get(host, fields)).await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{host} {fields}");
    }
    assert_eq!(stub.count(), seen, "no service sees any of them");
    drop(edge);
}

#[tokio::test]
async fn services_learn_which_requests_are_of_this_computer() {
    let stub = Stub::echo().await;
    let edge = of_up(&stub, &[]).await;
    for (host, fields, entrance) in [
        ("localhost:8080", "X-Internal-Entrance: proxy\r\n", Some("local")),
        ("127.0.0.1", "Origin: http://localhost\r\n", Some("local")),
        ("localhost", "X-Forwarded-For: 192.0.2.1\r\n", None),
        ("localhost", "Via: 1.1 proxy\r\n", None),
        (NAME, "", None),
    ] {
        assert_eq!(edge.ask(&get(host, fields)).await.status, 200, "{host} {fields}");
        assert_eq!(stub.last().header("x-internal-entrance"), entrance, "{host} {fields}");
        let version = edge.ask(&get(host, fields).replace("/v1/sessions", "/v1/version")).await.json();
        let local = entrance.map_or(serde_json::Value::Null, |_| true.into());
        assert_eq!(version["local"], local, "{host} {fields}");
    }
    let (_behind, proxy) = behind_proxy(&stub, &[]).await;
    for version in [
        carried(proxy, "GET /v1/version", "127.0.0.1").await.json(),
        Edge::before(&stub).await.ask(&get("localhost", "").replace("/v1/sessions", "/v1/version")).await.json(),
    ] {
        assert!(version["name"] == "ensemble" && version.get("local").is_none(), "{version}");
    }
    let network = Edge::before(&stub).await;
    assert_eq!(network.ask(&get("localhost", "X-Internal-Entrance: local\r\n")).await.status, 200);
    assert_eq!(stub.last().header("x-internal-entrance"), None, "others can reach it");
}

#[tokio::test]
async fn what_comes_through_a_proxy_uses_up_nothing_of_this_computer() {
    let stub = Stub::echo().await;
    let limits = [
        ("LIMIT_SIGN_IN", "2"),
        ("LIMIT_DEVICE_LINK", "2"),
        ("LIMIT_PUBLIC_LINK", "2"),
        ("LIMIT_ADDRESS", "4"),
        ("MAX_CONNECTIONS_PER_ADDRESS", "20"),
    ];
    let (edge, proxy) = behind_proxy(&stub, &limits).await;
    for line in ["POST /v1/auth", "POST /v1/auth/links/x/request", "GET /v1/public-sessions/t", "GET /v1/sessions"] {
        let most = if line == "GET /v1/sessions" { 4 } else { 2 };
        // The proxy may say that the caller is on this computer.
        for caller in ["127.0.0.1", "192.0.2.1"] {
            for number in 1..=most + 1 {
                let answer = carried(proxy, line, caller).await;
                assert_eq!(answer.status, if number <= most { 200 } else { 429 }, "{line} of {caller}: {number}");
            }
        }
        let here = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(edge.ask(&here).await.status, 200, "{line}");
    }
    // Nor the connections: all of a proxy are of this computer's address.
    let mut held = Vec::new();
    for _ in 0..30 {
        let mut raw = Raw::connect(proxy).await;
        raw.send(format!("GET /healthz HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n")).await;
        assert_eq!(raw.answer().await.status, 200);
        held.push(raw);
    }
    assert_eq!(edge.ask(&get("localhost", "").replace("/v1/sessions", "/healthz")).await.status, 200);
}

#[tokio::test]
async fn connections_of_a_proxy_are_at_most_half_of_all() {
    let stub = Stub::echo().await;
    let (edge, proxy) = behind_proxy(&stub, &[("MAX_CONNECTIONS", "8")]).await;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-For: 192.0.2.9\r\n\r\n");
    let mut held = Vec::new();
    for status in [200, 200, 200, 200, 429] {
        let mut raw = Raw::connect(proxy).await;
        raw.send(&request).await;
        assert_eq!(raw.answer().await.status, status);
        held.push(raw);
    }
    assert_eq!(edge.ask("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn accounts_that_a_proxy_carries_are_counted_by_caller() {
    let stub = crate::limits::identity().await;
    let (edge, proxy) = behind_proxy(&stub, &[("LIMIT_NEW_ACCOUNTS", "1"), ("ONLY_HERE", "true")]).await;
    for (caller, status) in [("192.0.2.1", 200), ("192.0.2.1", 429), ("127.0.0.1", 200), ("127.0.0.1", 429)] {
        assert_eq!(carried(proxy, "POST /v1/auth", caller).await.status, status, "{caller}");
    }
    assert_eq!(edge.ask("POST /v1/auth HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await.status, 200);
}

#[tokio::test]
async fn both_listeners_end_with_the_edge() {
    let stub = Stub::echo().await;
    let (edge, proxy) = behind_proxy(&stub, &[]).await;
    let public = edge.running.public_addr;
    assert_eq!(carried(proxy, "GET /v1/sessions", "192.0.2.1").await.status, 200);
    assert!(edge.running.stop().await);
    for at in [public, proxy] {
        assert!(Raw::connect_or_refused(at).await.is_none(), "{at} still listens");
    }
}
