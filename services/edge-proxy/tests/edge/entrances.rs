//! The listeners of `ensemble up`: which names they answer to, and whom they count.

use ensemble_chassis::Listeners;

use crate::Edge;
use crate::stub::Stub;

/// The public name of the server.
pub(crate) const NAME: &str = "ensemble.example.com";

/// An edge that listens for this computer, as that of `ensemble up` does.
pub(crate) async fn of_up(stub: &Stub, variables: &[(&str, &str)]) -> Edge {
    let mut listeners = Listeners::loopback().unwrap();
    listeners.entrances.loopback = Some(vec!["127.0.0.1".to_owned(), NAME.to_owned()]);
    Edge::on(listeners, &format!("http://{}", stub.address), variables).await
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
    // Whoever writes another address each time has one share all the same.
    for (number, status) in [200, 200, 429].into_iter().enumerate() {
        let fields = format!("X-Forwarded-For: 192.0.2.{number}\r\nContent-Length: 0\r\n");
        let sign_in = get("localhost", &fields).replace("GET /v1/sessions", "POST /v1/auth");
        assert_eq!(edge.ask(&sign_in).await.status, status, "{number}");
    }
}
