//! What HTTP asks of answers, for every route that it concerns.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_all_in_one::api;
use ensemble_client::devices::sign_list;
use ensemble_client::{AccountKey, Client, Credential};
use ensemble_e2e::{Stack, User};
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
        devices: vec![ListedDevice { key: account.clone(), box_key, role: Role::Primary, machine_id: None }],
    };
    let change = ChangeDevices {
        list: sign_list(&list, &key).unwrap(),
        sealed: BTreeMap::from([(account, Blob::new("sealed").unwrap())]),
        link: None,
        names: BTreeMap::new(),
        proofs: BTreeMap::new(),
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
    let mut made: Vec<Making> = vec![
        ("/v1/devices", "/v1/devices".to_owned(), first_list),
        ("/v1/auth/tokens", "/v1/auth/tokens".to_owned(), json!({ "machineId": "m" })),
        ("/v1/auth/links", "/v1/auth/links".to_owned(), Value::Null),
        ("/v1/machines", "/v1/machines".to_owned(), json!({ "id": "other", "metadata": "x", "encryptionKey": "x" })),
        (
            "/v1/sessions",
            "/v1/sessions".to_owned(),
            json!({ "machineId": "m", "metadata": "of the new session", "encryptionKey": "x" }),
        ),
        ("/v3/sessions/{id}/messages", messages.clone(), message("1")),
        ("/v3/sessions/{id}/messages", messages, json!({ "messages": [message("2"), message("3")] })),
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
            "/v1/auth/links" => vec!["\"state\":\"waiting\"".to_owned()],
            "/v1/sessions/{id}/public-share" => vec![member("createdAt"), "\"maxUses\":7".to_owned()],
            "/v1/sessions/{id}/shares" => vec![friend.id.clone()],
            "/v3/sessions/{id}/messages" if body["messages"].is_array() => vec!["of 2".to_owned(), "of 3".to_owned()],
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
