//! What the edge answers for itself.

use crate::Edge;
use crate::stub::Stub;

#[tokio::test]
async fn health_version_and_document_need_no_service() {
    let stub = Stub::echo().await;
    let edge = Edge::at("http://127.0.0.1:9", &[]).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(edge.get(path).await.status, 200, "{path}");
    }
    let version = edge.get("/v1/version").await.json();
    assert_eq!((version["name"].as_str(), &version["api"]), (Some("ensemble"), &serde_json::json!(["v1", "v2", "v3"])));
    let document = edge.get("/openapi.json").await;
    assert_eq!(document.header("content-type"), Some("application/json"));
    assert!(document.json()["openapi"].as_str().unwrap().starts_with("3.1"));
    let wrong = edge.ask("POST /v1/version HTTP/1.1\r\nHost: edge\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(
        (wrong.status, wrong.code(), wrong.header("allow")),
        (405, "METHOD_NOT_ALLOWED".to_owned(), Some("GET, HEAD"))
    );
    assert_eq!(stub.count(), 0);
}

#[tokio::test]
async fn the_documentation_page_brings_all_its_files() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    for path in ["/", "/docs"] {
        let answer = edge.get(path).await;
        assert_eq!((answer.status, answer.header("location")), (308, Some("/docs/")));
    }
    let page = edge.get("/docs/").await;
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
    let html = page.text();
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing from elsewhere: {html}");
    assert!(!html.contains("<script>"), "no inline script: {html}");
    let mut files = 0;
    for part in
        html.split(['"', '\'']).filter(|part| part.ends_with(".js") || part.ends_with(".css") || part.ends_with(".png"))
    {
        let file = edge.get(&format!("/docs/{}", part.trim_start_matches("./"))).await;
        assert_eq!(file.status, 200, "{part}");
        files += 1;
    }
    assert!(files >= 3);
    assert!(edge.get("/docs/swagger-initializer.js").await.text().contains("/openapi.json"));
    let missing = edge.get("/docs/nothing.js").await;
    assert_eq!((missing.status, missing.code()), (404, "NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn the_share_page_is_the_same_for_every_link_and_may_run_itself_only() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("PUBLIC_BASE_URL", "https://api.example.com")]).await;
    let (one, other) = (edge.get("/share/abc").await, edge.get("/share/xyz").await);
    assert_eq!((one.status, one.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(one.body, other.body, "no token is written into it");
    let policy = one.header("content-security-policy").unwrap();
    assert!(!policy.contains("unsafe") && policy.contains("script-src 'sha256-"), "{policy}");
    for (name, value) in [
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("x-robots-tag", "noindex"),
        ("strict-transport-security", "max-age=31536000; includeSubDomains"),
    ] {
        assert_eq!(one.header(name), Some(value), "{name}");
    }
    assert_eq!(stub.count(), 0, "looking at the page reads no link");
}
