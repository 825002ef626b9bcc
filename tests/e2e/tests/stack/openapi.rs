//! The OpenAPI document: the committed file, and the one that the edge serves, match the route tables.

use std::collections::BTreeSet;

use ensemble_all_in_one::api;
use ensemble_e2e::Stack;
use ensemble_testkit::Backend;
use ensemble_types::problem::Code;
use serde_json::{Value, json};

#[test]
fn the_committed_document_is_current() {
    let written = include_str!("../../../../docs/openapi.json");
    assert!(written == api::as_text().unwrap(), "docs/openapi.json is stale: run `make openapi`");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_serves_the_document_and_its_page() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let (status, document) = stack.call("", "GET", "/openapi.json", None).await.unwrap();
    assert_eq!((status, document["openapi"].as_str().unwrap().starts_with("3.1")), (200, true));
    assert!(document["paths"].as_object().unwrap().len() > 30);
    let page = stack.http.get(format!("{}/docs/", stack.url())).send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.headers().contains_key("content-security-policy"));
    let (status, version) = stack.call("", "GET", "/v1/version", None).await.unwrap();
    assert_eq!(status, 200, "{version}");
    assert!(stack.services.stop().await);
}

/// Each operation of the document, with its name for messages.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
        })
        .collect()
}

#[test]
fn problems_stand_once_and_each_code_of_an_operation_has_its_response() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let mut codes = BTreeSet::new();
    for (name, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap();
        let problems = responses.iter().filter(|(status, _)| !status.starts_with(['2', '3']));
        assert!(problems.clone().all(|(_, response)| response["$ref"].is_string()), "{name}");
        let mut expected = BTreeSet::from(["default".to_owned()]);
        for code in operation["x-codes"].as_array().unwrap() {
            let code = Code::ALL.iter().find(|known| known.as_str() == code).expect("a known code");
            expected.insert(code.status().to_string());
            codes.insert(code.as_str());
        }
        assert_eq!(problems.map(|(status, _)| status.clone()).collect::<BTreeSet<_>>(), expected, "{name}");
    }
    let others = document.pointer("/components/responses/OtherProblem/description").unwrap().as_str().unwrap();
    codes.extend(others.split([' ', ',', '.']).filter(|word| word.contains(char::is_uppercase)));
    // It is of the path and not of an operation.
    for code in Code::ALL.iter().filter(|code| **code != Code::MethodNotAllowed) {
        assert!(codes.contains(code.as_str()), "no operation can answer {}", code.as_str());
    }
}

#[test]
fn every_operation_has_an_id_of_its_own_and_every_stream_a_schema() {
    let document: Value = serde_json::from_str(&api::as_text().unwrap()).unwrap();
    let methods = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let (mut ids, mut streams) = (BTreeSet::new(), 0);
    for operation in methods {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "{id} is there twice");
        if let Some(stream) = operation.pointer("/responses/200/content/text~1event-stream") {
            assert!(stream["schema"]["$ref"].is_string(), "{id} does not say what its events are");
            streams += 1;
        }
    }
    assert_eq!(streams, 5);
}

#[test]
fn every_reference_resolves_and_the_codes_are_complete() {
    let document: Value = serde_json::from_str(&api::as_text().unwrap()).unwrap();
    let mut found = 0;
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        if let Some(to) = value["$ref"].as_str() {
            found += 1;
            assert!(document.pointer(&to[1..]).is_some(), "{to} does not resolve");
        }
        match value {
            Value::Object(members) => open.extend(members.values()),
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(found > 100, "only {found} references: the document is incomplete");
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(document.pointer("/components/schemas/Code/enum"), Some(&json!(codes)));
}
