//! What a server that lies can do while a device is linked: nothing is added, and nothing is kept.

use ensemble_protocol::AccountKey;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::lies::{list_of, victim};
use crate::linking::{join, link};
use crate::lying::LyingServer;

#[test]
fn a_swapped_key_in_a_linking_adds_nothing() {
    let server = LyingServer::start();
    let (user, _, _) = victim(&server);
    let second = User::new(None);
    let swapped = AccountKey::generate().public_key();
    server.lie(move |line, answer| {
        if line.starts_with("GET /v1/auth/links/") && answer["request"].is_object() {
            answer["request"]["publicKey"] = json!(swapped);
        }
    });
    let (first, address) = link(&user, &[]);
    let (waiting, _) = join(&second, &address);
    let (code, said) = first.end();
    assert!(code == 1 && said.contains("changed what the new device sent"), "{said}");
    let (code, said) = waiting.end();
    assert!(code == 1 && said.contains("refused this one"), "{said}");
    assert_eq!(list_of(&user)["version"], 1);
}

#[test]
fn a_phone_is_not_linked_to_another_account() {
    let server = LyingServer::start();
    let (user, _, _) = victim(&server);
    let second = User::new(None);
    let operator = server.operator.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    let lists = list_page(&server, &operator);
    server.lie(move |line, answer| {
        if line.starts_with("GET /v1/users/") && line.contains("/devices") {
            *answer = lists.clone();
        }
        if line == "POST /v1/auth" && answer["userId"].is_string() {
            answer["userId"] = json!(operator);
        }
    });
    let (mut first, address) = link(&user, &[]);
    let (waiting, digits) = join(&second, &address);
    first.until("new device shows: ");
    first.answer(&digits);
    let (code, said) = first.end();
    assert_eq!(code, 0, "{said}");
    let (code, said) = waiting.end();
    assert!(code == 1 && !second.files().join("account.key").exists(), "{said}");
}

/// The device lists of a user, as the real server has them.
fn list_page(server: &LyingServer, user: &str) -> Value {
    let token = server.operator.succeed(&["token"]);
    let output = std::process::Command::new("curl")
        .args(["-s", "-H", &format!("Authorization: Bearer {}", token.trim())])
        .arg(format!("{}/v1/users/{user}/devices", server.direct))
        .output();
    serde_json::from_slice(&output.unwrap().stdout).unwrap()
}
