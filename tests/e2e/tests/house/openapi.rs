//! The document that the edge serves is the one that the route tables make.

use ensemble_all_in_one::api;
use ensemble_e2e::House;
use ensemble_testkit::Backend;
use ensemble_types::problem::Code;
use serde_json::{Value, json};

#[test]
fn the_written_document_is_fresh() {
    let written = include_str!("../../../../docs/openapi.json");
    assert!(written == api::as_text().unwrap(), "docs/openapi.json is stale: run `make openapi`");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_serves_the_document_and_a_page_to_try_it() {
    let house = House::open(Backend::Sqlite, &[]).await.unwrap();
    let (status, document) = house.call("", "GET", "/openapi.json", None).await.unwrap();
    assert_eq!((status, document["openapi"].as_str().unwrap().starts_with("3.1")), (200, true));
    assert!(document["paths"].as_object().unwrap().len() > 30);
    let page = house.http.get(format!("{}/docs/", house.url())).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("content-security-policy"));
    let (status, version) = house.call("", "GET", "/v1/version", None).await.unwrap();
    assert_eq!(status, 200, "{version}");
    assert!(house.stack.stop().await);
}

#[test]
fn every_reference_leads_somewhere_and_codes_are_those_on_the_wire() {
    let document: Value = serde_json::from_str(&api::as_text().unwrap()).unwrap();
    let mut found = 0;
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        if let Some(to) = value["$ref"].as_str() {
            found += 1;
            assert!(document.pointer(&to[1..]).is_some(), "{to} leads nowhere");
        }
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(found > 100, "only {found} references: this looked at the wrong thing");
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(document.pointer("/components/schemas/Code/enum"), Some(&json!(codes)));
}
