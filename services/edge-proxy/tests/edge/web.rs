//! The web app as the edge serves it: its page at its addresses, its files, and nothing for programs that ask for something else.

use crate::Edge;
use crate::raw::Answer;
use crate::stub::Stub;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

impl Edge {
    async fn browse(&self, path: &str, fields: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: edge\r\nAccept: {BROWSER}\r\n{fields}\r\n")).await
    }
}

#[tokio::test]
async fn the_page_is_at_each_of_its_addresses_for_browsers_only() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let page = edge.browse("/", "").await;
    assert!(page.text().starts_with("<!doctype html>"), "{}", page.text());
    for path in ["/sessions/0199a1b2-0000-7000-8000-000000000000", "/machines", "/settings", "/runs/x", "/start"] {
        let same = edge.browse(path, "").await;
        assert_eq!((same.status, &same.body), (200, &page.body), "{path}");
        // Programs do not want HTML.
        let other = edge.get(path).await;
        assert_eq!((other.status, other.code()), (404, "NOT_FOUND".to_owned()), "{path}");
    }
    let program = edge.get("/").await;
    assert_eq!((program.status, program.header("location")), (307, Some("/docs/")));
    assert!(program.header("vary").unwrap().contains("Accept"));
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn a_public_link_opens_in_the_app_and_its_address_is_still_a_secret() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("PUBLIC_BASE_URL", "https://api.example.com")]).await;
    let home = edge.browse("/", "").await;
    for answer in [edge.browse("/share/abc", "").await, edge.get("/share/xyz").await] {
        if !ensemble_web::is_built() {
            assert_eq!((answer.status, answer.code()), (404, "NOT_FOUND".to_owned()));
            continue;
        }
        assert_eq!((answer.status, &answer.body), (200, &home.body), "no token is written into it");
        for (name, value) in [
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("x-robots-tag", "noindex"),
            ("strict-transport-security", "max-age=31536000; includeSubDomains"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
    }
    assert_eq!(stub.count(), 0, "looking at the page reads no link");
}

#[tokio::test]
async fn what_is_no_page_stays_a_problem_or_the_services() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in ["/v1/nothing", "/v9/sessions"] {
        let answer = edge.browse(path, "").await;
        assert_eq!((answer.status, answer.code()), (404, "NOT_FOUND".to_owned()), "{path}");
    }
    for path in ["/nothing", "/metrics", "/sessions/a.js", "/assets/none.js", "/x.png"] {
        let answer = edge.get(path).await;
        assert_eq!((answer.status, answer.code()), (404, "NOT_FOUND".to_owned()), "{path}");
    }
    let posted =
        edge.ask("POST /machines HTTP/1.1\r\nHost: edge\r\nAccept: text/html\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((posted.status, posted.code()), (404, "NOT_FOUND".to_owned()));
    assert_eq!(stub.count(), 0);
    // An address of the interface opened in a browser is the interface's.
    assert_eq!(edge.browse("/v1/sessions", "").await.status, 200);
    assert_eq!(stub.count(), 1);
}

#[tokio::test]
async fn a_person_at_a_mistyped_address_gets_the_page() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let page = edge.browse("/", "").await;
    let etag = page.header("etag").unwrap();
    for path in ["/nothing", "/session", "/settngs/devices", "/docs2", "/docs/nothing", "/x.png"] {
        for fields in [String::new(), format!("If-None-Match: {etag}\r\n")] {
            let answer = edge.browse(path, &fields).await;
            assert_eq!((answer.status, &answer.body), (404, &page.body), "{path}");
            for name in ["content-type", "content-security-policy", "cache-control", "x-content-type-options"] {
                assert_eq!(answer.header(name), page.header(name), "{path} {name}");
            }
            assert_eq!(answer.header("etag"), None, "{path}");
        }
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn the_page_may_run_its_own_files_and_nothing_else() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let page = edge.browse("/", "").await;
    let policy = page.header("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types ensemble",
    ] {
        assert!(policy.split("; ").any(|one| one == rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("permissions-policy", "microphone=(self), camera=(self)"),
        ("cache-control", "no-cache"),
        ("content-type", "text/html; charset=utf-8"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let html = page.text();
    assert!(!html.contains("<script>") && !html.contains("<style") && !html.contains("style="), "{html}");
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing from elsewhere: {html}");
}

#[tokio::test]
async fn voice_may_connect_to_livekit_where_it_is_configured() {
    let stub = Stub::echo().await;
    for (variables, expected) in [
        (vec![("LIVEKIT_WS_URL", "wss://voice.example.com/rtc")], "connect-src 'self' wss://voice.example.com"),
        (vec![("LIVEKIT_URL", "http://127.0.0.1:7880")], "connect-src 'self' ws://127.0.0.1:7880"),
    ] {
        let edge = Edge::with(&stub, &variables).await;
        let page = edge.browse("/", "").await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.split("; ").any(|rule| rule == expected), "{policy}");
    }
}

#[tokio::test]
async fn each_file_comes_as_the_browser_takes_it_and_once() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in ensemble_web::paths() {
        let plain = edge.browse(&format!("/{path}"), "").await;
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        assert_eq!(Some(&plain.body[..]), ensemble_web::file(path, "").map(|file| file.bytes));
        assert!(plain.header("vary").unwrap().contains("Accept-Encoding"), "{path}");
        let kept = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
        assert_eq!(plain.header("cache-control"), Some(kept), "{path}");

        let has_packed = ensemble_web::file(path, "gzip").is_some_and(|file| file.etag != unpacked_tag(path));
        for (accepted, coding) in [("gzip, deflate", "gzip"), ("gzip, deflate, br, zstd", "br")] {
            let packed = edge.browse(&format!("/{path}"), &format!("Accept-Encoding: {accepted}\r\n")).await;
            assert_eq!(packed.header("content-encoding"), has_packed.then_some(coding), "{path}");
            assert_eq!(packed.body.len() < plain.body.len(), has_packed, "{path}");
            let tag = packed.header("etag").unwrap();
            let again = edge
                .browse(&format!("/{path}"), &format!("Accept-Encoding: {accepted}\r\nIf-None-Match: \"x\", {tag}\r\n"))
                .await;
            assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag)), "{path}");
            // As a proxy that packs answers makes it.
            let weak = format!("Accept-Encoding: {accepted}\r\nIf-None-Match: W/{tag}\r\n");
            assert_eq!(edge.browse(&format!("/{path}"), &weak).await.status, 304, "{path}");
        }
    }
    let mut raw = edge.connect().await;
    raw.send(format!("HEAD / HTTP/1.1\r\nHost: edge\r\nAccept: {BROWSER}\r\n\r\n").as_bytes()).await;
    let head = raw.answer_to("HEAD").await;
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/html; charset=utf-8")));
}

fn unpacked_tag(path: &str) -> String {
    ensemble_web::file(path, "").map(|file| file.etag).unwrap_or_default()
}
