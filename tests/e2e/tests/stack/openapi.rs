//! The OpenAPI document: the committed file, and the one that the edge serves, match the route tables.

use std::collections::BTreeSet;

use ensemble_all_in_one::api;
use ensemble_chassis::Routes;
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
pub(crate) fn operations(document: &Value) -> Vec<(String, &Value)> {
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

/// The verbs with which the ids of operations begin. Those of a call for the agent of a voice session or a runner are among them.
const VERBS: [&str; 28] = [
    "answer", "append", "apply", "cancel", "change", "check", "claim", "continue", "create", "delete", "discard",
    "finish", "follow", "get", "list", "receive", "refuse", "register", "request", "retry", "revoke", "say", "send",
    "sign", "start", "stop", "update", "wait",
];

#[test]
fn every_operation_is_named_by_a_verb_and_a_noun() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(ids.insert(id), "{id} is there twice");
        let verb = id.split(char::is_uppercase).next().unwrap();
        assert!(VERBS.contains(&verb) && id.len() > verb.len(), "{name}: {id} does not begin with a known verb");
        assert!(id.chars().all(|c| c.is_ascii_alphabetic()), "{name}: {id} has something else than letters");
    }
    let unused: Vec<_> = VERBS.iter().filter(|verb| !ids.iter().any(|id| id.starts_with(**verb))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn every_route_but_the_pages_is_an_operation() {
    let tables = api::tables();
    let pages = tables.iter().flat_map(Routes::rows).filter(|row| row.doc.id.is_none()).map(|row| row.path);
    assert_eq!(pages.collect::<Vec<_>>(), ["/", "/docs", "/docs/", "/docs/{file}", "/share/{token}"]);
}

#[test]
fn every_stream_says_what_its_events_are() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let streams = operations(&document)
        .into_iter()
        .filter_map(|(name, operation)| Some((name, operation.pointer("/responses/200/content/text~1event-stream")?)));
    let schemas: Vec<_> = streams.map(|(name, stream)| (name, stream["schema"]["$ref"].is_string())).collect();
    assert!(schemas.iter().all(|(_, is_said)| *is_said), "{schemas:?}");
    assert_eq!(schemas.len(), 10, "each by GET and by POST");
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

#[test]
fn no_schema_is_only_a_limit() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let named = document["components"]["schemas"].as_object().unwrap();
    let limits: Vec<_> = named.keys().filter(|name| !name.chars().all(char::is_alphanumeric)).collect();
    assert!(limits.is_empty(), "{limits:?}");
    let content = &named["Message"]["properties"]["content"];
    assert_eq!((&content["type"], &content["$ref"]), (&json!("string"), &Value::Null), "{content}");
    let text = document.to_string();
    assert!(!text.contains("x-inline") && !text.contains("[`"), "the words of types are left in the document");
}

#[test]
fn every_operation_says_which_credentials_it_takes() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let schemes = document.pointer("/components/securitySchemes").unwrap().as_object().unwrap();
    let mut used = BTreeSet::new();
    for (name, operation) in operations(&document) {
        for either in operation["security"].as_array().unwrap_or_else(|| panic!("{name} says nothing")) {
            used.extend(either.as_object().unwrap().keys());
        }
        let is_refused = operation["responses"].get("401").is_some();
        let is_public = operation["security"] == json!([]);
        // A sign-in takes no credentials and refuses wrong ones.
        assert!(is_refused != is_public || name == "POST /v1/auth", "{name}");
    }
    assert_eq!(used, schemes.keys().collect::<BTreeSet<_>>());
}

#[test]
fn everything_has_words() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let mut without = Vec::new();
    let mut look = |name: &str, value: &Value| {
        if value["description"].as_str().unwrap_or_default().trim().len() < 5 {
            without.push(name.to_owned());
        }
    };
    let mut tags = BTreeSet::new();
    for (name, operation) in operations(&document) {
        look(&name, operation);
        tags.insert(operation["tags"][0].as_str().unwrap());
        for (status, response) in operation["responses"].as_object().unwrap() {
            if response["$ref"].is_null() {
                look(&format!("{name} {status}"), response);
            }
        }
    }
    for (name, tag) in document["tags"].as_array().unwrap().iter().map(|tag| (tag["name"].as_str().unwrap(), tag)) {
        look(name, tag);
        assert!(tags.remove(name), "no operation has the tag {name}");
    }
    assert!(tags.is_empty(), "{tags:?}");
    assert!(without.is_empty(), "{without:?}");
    for member in ["/info/license/identifier", "/info/contact/name", "/servers/0/url"] {
        assert!(document.pointer(member).is_some_and(Value::is_string), "{member}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_answers_are_sent() {
    let document = serde_json::to_value(api::document().unwrap()).unwrap();
    let stack =
        Stack::start(Backend::Sqlite, &[("EDGE_PROXY_LIMIT_SIGN_IN", "3"), ("EDGE_PROXY_LIMIT_ADDRESS", "3000")])
            .await
            .unwrap();
    let owner = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let ask = |token: &str, method: &str, path: &str, body: Value| {
        let call = stack.http.request(method.parse().unwrap(), format!("{}{path}", stack.url()));
        let call = if token.is_empty() { call } else { call.bearer_auth(token) };
        if body.is_null() { call.send() } else { call.json(&body).send() }
    };
    let session = json!({ "machineId": "m", "metadata": "e2e", "encryptionKey": "e2e", "titel": "" });
    let mut seen = BTreeSet::new();
    for (token, method, path, body, operation, status) in [
        (&*owner.token, "POST", "/v1/sessions", session, "/v1/sessions", 201),
        (&*owner.token, "GET", "/v1/machines/m", Value::Null, "/v1/machines/{id}", 200),
        ("", "GET", "/v1/account", Value::Null, "/v1/account", 401),
        ("", "POST", "/v1/auth/challenge", Value::Null, "/v1/auth/challenge", 200),
        ("", "POST", "/v1/auth/challenge", Value::Null, "/v1/auth/challenge", 429),
    ] {
        let mut answer = ask(token, method, path, body.clone()).await.unwrap();
        for _ in 0..if status == 429 { 3 } else { 0 } {
            answer = ask(token, method, path, body.clone()).await.unwrap();
        }
        assert_eq!(answer.status(), status, "{method} {path}");
        let responses = &document["paths"][operation][method.to_lowercase()]["responses"];
        let response = responses.get(status.to_string()).unwrap_or(&responses["default"]);
        let response = response["$ref"].as_str().map_or(response, |to| document.pointer(&to[1..]).unwrap());
        for name in response["headers"].as_object().unwrap().keys() {
            // There is one only where a member was ignored.
            assert!(
                answer.headers().contains_key(name) || name == "Ignored-Members",
                "{method} {path} {status}: {name}"
            );
            seen.extend(answer.headers().contains_key(name).then(|| name.clone()));
        }
    }
    for name in
        ["Location", "ETag", "RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate", "Ignored-Members"]
    {
        assert!(seen.contains(name), "{name} was not sent: {seen:?}");
    }
    assert!(stack.services.stop().await);
}

/// The keywords that OpenAPI 3.0 does not have, and what it has otherwise.
fn newer_keywords(value: &Value, is_map: bool, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let is_new =
                    ["const", "examples", "contentSchema", "contentMediaType", "propertyNames", "$defs", "prefixItems"];
                let is_wrong = is_new.contains(&name.as_str())
                    || name == "type" && (value.is_array() || value == "null")
                    || name.starts_with("exclusive") && value.is_number()
                    || name == "$ref" && object.len() > 1;
                if is_wrong && !is_map {
                    found.push(format!("{name}: {value}"));
                }
                newer_keywords(value, ["properties", "schemas"].contains(&name.as_str()) && !is_map, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| newer_keywords(item, false, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_serves_the_document_for_tools_that_stop_at_3_0() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let (status, older) = stack.call("", "GET", "/openapi-3.0.json", None).await.unwrap();
    assert_eq!((status, &older["openapi"]), (200, &json!("3.0.3")));
    let newer = serde_json::to_value(api::document().unwrap()).unwrap();
    let ids = |document: &Value| -> BTreeSet<String> {
        operations(document).iter().map(|(_, operation)| operation["operationId"].to_string()).collect()
    };
    assert_eq!(ids(&older), ids(&newer));
    let mut found = Vec::new();
    newer_keywords(&older, false, &mut found);
    assert!(found.is_empty(), "{found:?}");
    newer_keywords(&newer, false, &mut found);
    assert!(found.len() > 100, "the look finds nothing");
    assert!(stack.services.stop().await);
}
