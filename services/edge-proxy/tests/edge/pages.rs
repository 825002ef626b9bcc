//! What the edge answers for itself.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

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

/// What the page shows when its address ends with `fragment`, by the script that the edge serves.
fn shown(html: &str, vectors: &Value, fragment: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/edge/share_page.mjs");
    let mut node = Command::new("node")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node (18 or newer) must be installed: it plays the browser");
    let input = json!({ "html": html, "vectors": vectors, "fragment": fragment });
    node.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "the page's script failed; see its words above");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn the_share_page_opens_what_our_clients_seal() {
    let stub = Stub::echo().await;
    let edge = Edge::before(&stub).await;
    let html = edge.get("/share/abc").await.text();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/protocol/vectors/seal.json");
    let vectors: Value = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();

    let opened = shown(&html, &vectors, &format!("#{}", vectors["link"]["fragment"].as_str().unwrap()));
    assert_eq!(opened["asked"], json!([{ "address": "/v1/public-sessions/token", "headers": ["Idempotency-Key"] }]));
    assert_eq!(opened["status"], "");
    let sealed = vectors["contents"].as_array().unwrap().iter();
    let expected: Vec<Value> = sealed
        .filter(|content| content["aad"].as_str().unwrap().starts_with("ensemble-message-v1"))
        .map(|content| {
            let plain = content["plaintext"].as_str().unwrap();
            serde_json::from_str::<Value>(plain).map_or(json!(plain), |body| body["text"].clone())
        })
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(opened["messages"], Value::Array(expected));

    let other_key = format!("#v1.{}", "A".repeat(43));
    for (fragment, status) in
        [("", "This address has no key"), (other_key.as_str(), "The key in this address does not open")]
    {
        let sealed = shown(&html, &vectors, fragment);
        assert!(sealed["status"].as_str().unwrap().starts_with(status), "{sealed}");
        let messages = sealed["messages"].as_array().unwrap();
        assert!(messages.iter().all(|text| text.as_str().unwrap().starts_with("encrypted, ")), "{sealed}");
    }
}

#[tokio::test]
async fn nothing_behind_a_public_link_belongs_into_a_search_engine() {
    let stub = Stub::echo().await;
    let edge = Edge::with(&stub, &[("LIMIT_PUBLIC_LINK", "3")]).await;
    for (path, status) in [
        ("/v1/public-sessions/abc", 200),
        ("/v1/public-sessions/abc/stream", 200),
        ("/share/abc", 200),
        ("/v1/public-sessions/abc", 429),
    ] {
        let answer = edge.get(path).await;
        assert_eq!((answer.status, answer.header("x-robots-tag")), (status, Some("noindex")), "{path}");
    }
    assert_eq!(edge.get("/v1/sessions").await.header("x-robots-tag"), None);
}
