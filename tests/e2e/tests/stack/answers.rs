//! What HTTP asks of answers, for every route that it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ensemble_all_in_one::api;
use ensemble_client::devices::sign_list;
use ensemble_client::{Client, Credential};
use ensemble_e2e::{Stack, User};
use ensemble_protocol::AccountKey;
use ensemble_testkit::Backend;
use ensemble_types::devices::{ChangeDevices, DeviceList, ListedDevice, Role};
use ensemble_types::text::Blob;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

/// A call that makes something: its path in the document, its path here, and its body.
type Making = (&'static str, String, Value);

/// A user whose device list has not been made yet, and the request that makes it.
async fn user_with_first_list(stack: &Stack) -> (User, Value) {
    let key = AccountKey::generate();
    let client = Client::builder(stack.url()).credential(Credential::Account(key.clone())).build().unwrap();
    let token = client.sign_in().await.unwrap();
    let any_key = || AccountKey::generate().public_key();
    let (account, box_key) = (key.public_key(), any_key());
    let list = DeviceList {
        account: account.clone(),
        version: 1,
        prev: None,
        created: ensemble_chassis::Clock::system().now(),
        content_epoch: 1,
        content_public_key: any_key(),
        devices: vec![ListedDevice {
            key: account.clone(),
            box_key,
            role: Role::Primary,
            machine_id: None,
            name: None,
            by: None,
        }],
    };
    let change = ChangeDevices {
        list: Some(sign_list(&list, &key).unwrap()),
        sealed: BTreeMap::from([(account, Blob::new("sealed").unwrap())]),
        ..ChangeDevices::default()
    };
    let user = User { id: token.user_id.to_string(), token: token.token.expose_secret().to_owned() };
    (user, serde_json::to_value(change).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_201_says_where_what_was_made_is_read() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let (owner, first_list) = user_with_first_list(&stack).await;
    let friend = stack.user().await.unwrap();
    stack.machine(&owner, "m").await.unwrap();
    let session = stack.session(&owner, "m").await.unwrap();
    let message = |id: &str| json!({ "content": format!("content of {id}"), "localId": id });
    let messages = format!("/v3/sessions/{session}/messages");
    let in_an_hour = ensemble_chassis::Clock::system().now().plus(Duration::from_secs(3_600));
    let mut made: Vec<Making> = vec![
        ("/v1/devices", "/v1/devices".to_owned(), first_list),
        ("/v1/auth/tokens", "/v1/auth/tokens".to_owned(), json!({ "machineId": "m" })),
        ("/v1/auth/links", "/v1/auth/links".to_owned(), Value::Null),
        ("/v1/invites", "/v1/invites".to_owned(), json!({ "admission": "A".repeat(43), "expiresAt": in_an_hour })),
        ("/v1/machines", "/v1/machines".to_owned(), json!({ "id": "other", "metadata": "x", "encryptionKey": "x" })),
        (
            "/v1/sessions",
            "/v1/sessions".to_owned(),
            json!({ "machineId": "m", "metadata": "of the new session", "encryptionKey": "x" }),
        ),
        ("/v3/sessions/{id}/messages", messages.clone(), message("1")),
        (
            "/v3/sessions/{id}/messages/batch",
            format!("{messages}/batch"),
            json!({ "messages": [message("2"), message("3")] }),
        ),
        (
            "/v1/sessions/{id}/shares",
            format!("/v1/sessions/{session}/shares"),
            json!({ "userId": friend.id, "accessLevel": "view", "encryptedKey": "sealed for a friend" }),
        ),
        ("/v1/sessions/{id}/public-share", format!("/v1/sessions/{session}/public-share"), json!({ "maxUses": 7 })),
        (
            "/v1/orchestrator/runs",
            "/v1/orchestrator/runs".to_owned(),
            json!({ "tasks": [{ "prompt": "of the new run", "provider": "claude", "dependsOn": [] }] }),
        ),
    ];
    let document = serde_json::from_str::<Value>(&api::as_text().unwrap()).unwrap();
    let (mut documented, mut covered) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation.pointer("/responses/201").is_some() {
                assert_eq!(method, "post", "{path}");
                documented.insert(path.as_str());
            }
        }
    }
    for (template, path, body) in made.drain(..) {
        let url = format!("{}{path}", stack.url());
        let request = stack.http.post(&url).bearer_auth(&owner.token);
        let answer = if body.is_null() { request } else { request.json(&body) }.send().await.unwrap();
        let location = answer.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        let (status, answer) = (answer.status(), answer.json::<Value>().await.unwrap());
        assert_eq!(status, 201, "{path}: {answer}");
        let location = location.unwrap_or_else(|| panic!("{path} has no Location"));
        let (status, read) = stack.call(&owner.token, "GET", &location, None).await.unwrap();
        assert_eq!(status, 200, "{path}: {location}: {read}");
        // What tells the new thing from others, and is not secret.
        let read = read.to_string();
        let member = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let marks: Vec<String> = match template {
            "/v1/devices" => vec![body["list"]["signature"].as_str().unwrap().to_owned()],
            "/v1/invites" => vec!["\"state\":\"open\"".to_owned()],
            "/v1/auth/links" => vec!["\"state\":\"waiting\"".to_owned()],
            "/v1/sessions/{id}/public-share" => vec![member("createdAt"), "\"maxUses\":7".to_owned()],
            "/v1/sessions/{id}/shares" => vec![friend.id.clone()],
            "/v3/sessions/{id}/messages/batch" => vec!["of 2".to_owned(), "of 3".to_owned()],
            _ => vec![member("id")],
        };
        for mark in marks {
            assert!(!mark.is_empty() && read.contains(&mark), "{path}: {location} has no {mark}: {read}");
        }
        covered.insert(template);
    }
    assert_eq!(covered, documented, "each 201 of the document has a row here");
    assert!(stack.services.stop().await);
}

/// The status, the tag and the text of an answer to a caller that has what these tags name.
async fn read(stack: &Stack, token: &str, path: &str, known: Option<&str>) -> (u16, Option<String>, String) {
    let mut request = stack.http.get(format!("{}{path}", stack.url())).bearer_auth(token);
    if let Some(known) = known {
        request = request.header("if-none-match", known);
    }
    let answer = request.send().await.unwrap();
    let tag = answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
    (answer.status().as_u16(), tag, answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_a_tag_is_not_sent_to_who_has_it() {
    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let (owner, friend) = (stack.user().await.unwrap(), stack.user().await.unwrap());
    let (mine, friends) = (owner.token.as_str(), friend.token.as_str());
    stack.machine(&owner, "m").await.unwrap();
    let session = format!("/v1/sessions/{}", stack.session(&owner, "m").await.unwrap());
    let share = json!({ "userId": friend.id, "accessLevel": "admin", "encryptedKey": "sealed for a friend" });
    stack.must(mine, "POST", &format!("{session}/shares"), share).await.unwrap();
    let run = json!({ "tasks": [{ "prompt": "p".repeat(40_000), "provider": "claude", "dependsOn": [] }] });
    let run = stack.must(mine, "POST", "/v1/orchestrator/runs", run).await.unwrap();
    let run = format!("/v1/orchestrator/runs/{}", run["id"].as_str().unwrap());
    let cancel = format!("{run}/cancel");
    // A long one is made in pieces.
    let long = json!({ "metadata": "x".repeat(60_000), "expectedMetadataVersion": 1 });
    let mut tagged = BTreeSet::new();
    for (template, path, change) in [
        ("/openapi.json", "/openapi.json", None),
        ("/openapi-3.0.json", "/openapi-3.0.json", None),
        ("/v1/sessions/{id}", session.as_str(), Some(("PATCH", session.as_str(), json!({ "metadata": "new" })))),
        ("/v1/machines/{id}", "/v1/machines/m", Some(("PATCH", "/v1/machines/m", long))),
        ("/v1/orchestrator/runs/{id}", run.as_str(), Some(("POST", cancel.as_str(), json!({})))),
    ] {
        tagged.insert(template);
        let mut before = None;
        for change in [None, change] {
            if let Some((method, at, body)) = &change {
                stack.must(mine, method, at, body.clone()).await.unwrap();
            }
            let (status, tag, text) = read(&stack, mine, path, None).await;
            let tag = tag.unwrap_or_else(|| panic!("{path} has no tag"));
            assert!(status == 200 && tag.starts_with('"') && !text.is_empty(), "{path}: {status} {tag}");
            for known in [tag.clone(), format!("\"other\", {tag}"), format!("W/{tag}")] {
                let expected = if known.starts_with("W/") { &known } else { &tag };
                let same = (304, Some(expected.clone()), String::new());
                assert_eq!(read(&stack, mine, path, Some(&known)).await, same, "{path}: {known}");
            }
            if let Some(before) = before.replace(tag.clone()).filter(|_| change.is_some()) {
                assert_ne!(before, tag, "{path}");
                assert_eq!(read(&stack, mine, path, Some(&before)).await.0, 200, "{path}");
            }
        }
    }
    let with_tag: BTreeSet<&str> =
        api::tables().iter().flat_map(|table| table.rows().iter().filter(|row| row.etag).map(|row| row.path)).collect();
    assert_eq!(tagged, with_tag);
    // A friend gets another key, so the tag of the owner is not current.
    let owners = read(&stack, mine, &session, None).await.1.unwrap();
    assert_eq!(read(&stack, friends, &session, Some(&owners)).await.0, 200);
    assert_eq!(read(&stack, "", &session, Some(&owners)).await.0, 401);
    assert!(stack.services.stop().await);
}

/// The names of the members of what a schema refers to.
fn members<'a>(document: &'a Value, schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(of) => {
            if let Some(to) = of.get("$ref").and_then(Value::as_str) {
                members(document, document.pointer(&to[1..]).unwrap(), found);
            }
            if let Some(Value::Object(named)) = of.get("properties") {
                for (name, schema) in named {
                    if found.insert(name) {
                        members(document, schema, found);
                    }
                }
            }
            of.iter().filter(|(name, _)| *name != "properties").for_each(|(_, inner)| members(document, inner, found));
        }
        Value::Array(items) => items.iter().for_each(|item| members(document, item, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_get_reads_and_holds_no_secret_is_compressed() {
    let document: Value = serde_json::from_str(&api::as_text().unwrap()).unwrap();
    let tables = api::tables();
    let rows = || tables.iter().flat_map(|table| table.rows());
    let secret: BTreeSet<&str> = rows().filter(|row| row.secret).map(|row| row.path).collect();
    let expected = [
        "/v1/auth/links/{id}",
        "/v1/devices/content-ring",
        "/v1/invites/{id}",
        "/v1/public-sessions/{token}",
        "/v1/voice/key",
    ];
    assert_eq!(secret, BTreeSet::from(expected));
    for row in rows().filter(|row| row.method == "GET" && !row.secret) {
        let mut names = BTreeSet::new();
        members(&document, &document["paths"][row.path]["get"]["responses"]["200"]["content"], &mut names);
        let secrets = ["token", "viewToken", "secret", "password", "privateKey", "admission"];
        let found: Vec<_> = secrets.iter().filter(|name| names.contains(*name)).collect();
        assert!(found.is_empty(), "{} may be compressed and has {found:?}", row.path);
    }

    let stack = Stack::start(Backend::Sqlite, &[]).await.unwrap();
    let owner = stack.user().await.unwrap();
    for number in 0..8 {
        stack.machine(&owner, &format!("machine-{number}")).await.unwrap();
    }
    for (method, path, coding, kept) in [
        ("GET", "/v1/machines", Some("br"), "no-store"),
        ("GET", "/v1/account", None, "no-store"),
        ("POST", "/v1/auth/challenge", None, "no-store, no-transform"),
        ("POST", "/v1/auth/links", None, "no-store, no-transform"),
        ("GET", "/v1/voice/key", None, "no-store, no-transform"),
        ("GET", "/v1/events", None, "no-store, no-transform"),
    ] {
        let request = stack.http.request(method.parse().unwrap(), format!("{}{path}", stack.url()));
        let request = request.bearer_auth(&owner.token).header("accept-encoding", "gzip, deflate, br, zstd");
        let answer = request.send().await.unwrap();
        let field = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert!(answer.status().is_success(), "{path}");
        assert_eq!((field("content-encoding"), field("cache-control")), (coding, Some(kept)), "{method} {path}");
    }
    assert!(stack.services.stop().await);
}
