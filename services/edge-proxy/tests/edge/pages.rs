//! What the edge answers for itself.

use crate::Edge;
use crate::stub::Stub;

#[tokio::test]
async fn the_version_names_the_data_of_the_server() {
    let edge = Edge::at("http://127.0.0.1:9", &[("DATA_ID", "one"), ("DATA_FOLDER", "/")]).await;
    assert_eq!(edge.get("/v1/version").await.json()["dataId"], "one");
    assert_eq!(edge.get("/readyz").await.status, 200, "its disk has room");
}

#[tokio::test]
async fn health_version_and_document_need_no_service() {
    let stub = Stub::echo().await;
    let edge = Edge::at("http://127.0.0.1:9", &[]).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(edge.get(path).await.status, 200, "{path}");
    }
    let version = edge.get("/v1/version").await.json();
    assert_eq!((version["name"].as_str(), &version["api"]), (Some("ensemble"), &serde_json::json!(["v1", "v2", "v3"])));
    assert_eq!(version["dataId"], serde_json::Value::Null);
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
        assert_eq!((answer.status, answer.header("location")), (307, Some("/docs/")));
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
async fn nothing_behind_a_public_link_belongs_into_a_search_engine() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("LIMIT_PUBLIC_LINK", "3")]).await;
    for (path, status) in [
        ("/v1/public-sessions/abc", 200),
        ("/v1/public-sessions/abc/stream", 200),
        ("/share/abc", if ensemble_web::is_built() { 200 } else { 404 }),
        ("/v1/public-sessions/abc", 429),
    ] {
        let answer = edge.get(path).await;
        assert_eq!((answer.status, answer.header("x-robots-tag")), (status, Some("noindex")), "{path}");
    }
    assert_eq!(edge.get("/v1/sessions").await.header("x-robots-tag"), None);
}
