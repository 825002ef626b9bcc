//! What a server that lies can make a client do: nothing, at every step at which it takes part.

use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxPublicKey, Grant, KeyRing, Purpose, SharedRing};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::linking::add;
use crate::lying::LyingServer;

/// A user of the lying server, with a session.
pub(crate) fn victim(server: &LyingServer) -> (User, UserId, SessionId) {
    let user = User::new(Some(&server.url));
    let id = user.json(&["login"])["id"].as_str().unwrap().parse().unwrap();
    let session = user.json(&["session", "create", "--title", "Plans"])["session"]["id"].as_str().unwrap().parse();
    let session: SessionId = session.unwrap();
    user.succeed(&["session", "send", &session.to_string(), "before"]);
    (user, id, session)
}

/// The newest list of the user that the user's computer has checked, as it is signed.
fn signed_list(user: &User) -> Value {
    let id = user.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    let devices: Value = serde_json::from_slice(&std::fs::read(user.files().join("devices.json")).unwrap()).unwrap();
    let lists = devices.as_object().unwrap().values().next().unwrap();
    lists[id].clone()
}

pub(crate) fn list_of(user: &User) -> Value {
    serde_json::from_str(signed_list(user)["body"].as_str().unwrap()).unwrap()
}

/// The key to which everything of the user is sealed.
pub(crate) fn content_key(user: &User) -> BoxPublicKey {
    BoxPublicKey::from_text(list_of(user)["contentPublicKey"].as_str().unwrap()).unwrap()
}

#[test]
fn an_old_device_list_is_refused() {
    let server = LyingServer::start();
    let (user, _, _) = victim(&server);
    let first = signed_list(&user);
    user.succeed(&["machine", "register"]);
    assert_eq!(list_of(&user)["version"], 2);
    server.lie(move |line, answer| {
        if line.contains("/devices/content-ring") {
            answer["version"] = json!(1);
        }
        if line.contains("/v1/users/") && line.contains("/devices") {
            answer["lists"] = json!([first]);
        }
    });
    let said = user.fail(&["session", "list"]);
    assert!(said.contains("an old device list, or another one"), "{said}");
    server.lie(|line, answer| {
        if line.contains("/v1/users/") && line.contains("/devices") {
            answer["lists"] = json!([]);
        }
        if line.contains("/devices/content-ring") {
            answer["version"] = json!(3);
        }
    });
    let said = user.fail(&["session", "list"]);
    assert!(said.contains("an old device list, or another one"), "{said}");
    server.tell_the_truth();
    user.succeed(&["session", "list"]);
}

#[test]
fn another_content_key_in_a_list_is_refused() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let id = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    let stranger = BoxPublicKey::from_text(&AccountKey::generate().public_key()).unwrap().to_text();
    let path = format!("/v1/users/{id}/devices");
    server.lie(move |line, answer| {
        if line.contains(&path) {
            let body = answer["lists"][0]["body"].as_str().unwrap().to_owned();
            let mut list: Value = serde_json::from_str(&body).unwrap();
            list["contentPublicKey"] = json!(stranger);
            answer["lists"][0]["body"] = json!(list.to_string());
        }
    });
    let said = user.fail(&["share", "add", &session.to_string(), &id]);
    assert!(said.contains("not signed by the key that it names"), "{said}");
    server.tell_the_truth();
    assert!(friend.succeed(&["session", "list"]).contains("No sessions"));
}

#[test]
fn nothing_is_written_with_a_made_up_key() {
    let server = LyingServer::start();
    let (user, id, session) = victim(&server);
    let (ring, stranger) = (KeyRing::generate(), AccountKey::generate());
    let sealed =
        seal::seal_ring(&ring, &content_key(&user), Binding::Session { session, owner: id }, &stranger).unwrap();
    let made_up = sealed.clone();
    let (path, id) = (format!("GET /v1/sessions/{session}"), session.to_string());
    server.lie(move |line, answer| {
        if line == path {
            answer["encryptionKey"] = json!(made_up);
        }
    });
    for command in [
        ["session", "send", &id, "secret", "--force"].as_slice(),
        &["session", "read", &id],
        &["session", "rekey", &id],
    ] {
        let said = user.fail(command);
        assert!(said.contains("was not made by one of your devices"), "{said}");
    }
    // A new key is made here, whatever the server answers to it.
    let (path, asked) = (format!("GET /v1/sessions/{session}"), format!("PATCH /v1/sessions/{session}"));
    server.lie(move |line, answer| {
        if line == path {
            answer["rekeyNeeded"] = json!(true);
        }
        if line == asked {
            answer["encryptionKey"] = json!(sealed);
        }
    });
    user.succeed(&["session", "send", &id, "--force", "secret"]);
    server.tell_the_truth();
    let lines = user.json_lines(&["session", "read", &id]);
    let last = lines.last().unwrap();
    assert_eq!((&last["body"]["text"], &last["message"]["keyEpoch"]), (&json!("secret"), &json!(2)));
    let content = last["message"]["content"].as_str().unwrap();
    assert!(seal::open(&ring, Purpose::Message(session), content).is_err());
}

#[test]
fn a_session_is_not_taken_for_another_one() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let other = user.json(&["session", "create", "--title", "Other"])["session"].clone();
    let (id, friend) = (session.to_string(), User::new(Some(&server.direct)));
    let friend_id = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    let lie = |change: fn(&mut Value, &Value)| {
        let (path, other) = (format!("GET /v1/sessions/{id}"), other.clone());
        server.lie(move |line, answer| {
            if line == path {
                change(answer, &other);
            }
        });
    };
    let refused = |why: &str| {
        for command in [
            ["session", "send", &id, "secret", "--force"].as_slice(),
            &["share", "add", &id, &friend_id],
            &["share", "link", &id],
            &["session", "rekey", &id],
            &["session", "read", &id],
        ] {
            let said = user.fail(command);
            assert!(said.contains(why), "{command:?}: {said}");
        }
    };
    // Another session of the same owner, its key in the place of this one's, and this one as somebody else's.
    lie(|answer, other| *answer = other.clone());
    refused("something else than what was asked for");
    lie(|answer, other| answer["encryptionKey"] = other["encryptionKey"].clone());
    // The signature of a seal names its session.
    refused("it is not signed by who made it");
    lie(|answer, _| answer["accessLevel"] = json!("edit"));
    refused("belongs to somebody else");
    lie(|answer, _| {
        answer["accessLevel"] = json!("edit");
        answer["ownerId"] = json!(UserId::generate());
    });
    refused("belongs to somebody else");
    lie(|answer, _| {
        answer["hosted"] = json!(true);
        answer["machineId"] = json!("m");
    });
    refused("belongs to somebody else");
    server.tell_the_truth();
    user.succeed(&["session", "send", &id, "fine"]);
    assert!(friend.succeed(&["session", "list"]).contains("No sessions"));
}

#[test]
fn an_older_key_is_not_used_again() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let id = session.to_string();
    let before = user.json(&["session", "show", &id])["session"].clone();
    user.succeed(&["session", "rekey", &id]);
    let path = format!("GET /v1/sessions/{session}");
    server.lie(move |line, answer| {
        if line == path {
            *answer = before.clone();
        }
    });
    let said = user.fail(&["session", "send", &id, "secret"]);
    assert!(said.contains("older key"), "{said}");
    server.tell_the_truth();
    user.succeed(&["session", "send", &id, "secret"]);
}

#[test]
fn a_made_up_share_gets_no_key() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let id = session.to_string();
    let sign_up = |name: &str| {
        let new = User::new(Some(&server.direct));
        let account = new.json(&["login", "--name", name]);
        (new, account["id"].as_str().unwrap().to_owned(), account["publicKey"].as_str().unwrap().to_owned())
    };
    let ((friend, friend_id, _), (left, left_id, _), (thief, thief_id, thief_key)) =
        (sign_up("Friend"), sign_up("Left"), sign_up("Thief"));
    user.succeed(&["share", "add", &id, &friend_id, "--level", "admin"]);
    user.succeed(&["share", "add", &id, &left_id]);
    let shares = user.json(&["share", "list", &id])["shares"].clone();
    let removed = shares.as_array().unwrap().iter().find(|share| share["userId"] == *left_id).unwrap().clone();
    // The server goes on naming who was removed, with the grant of the present key.
    let (path, kept) = (format!("GET /v1/sessions/{id}/shares"), removed.clone());
    server.lie(move |line, answer| {
        if line.starts_with(&path) {
            let shares = answer["shares"].as_array_mut().unwrap();
            shares.retain(|share| share["userId"] != kept["userId"]);
            shares.push(kept.clone());
        }
        if line.starts_with("GET /v1/sessions/") && answer["rekeyNeeded"] == true {
            answer["rekeyNeeded"] = json!(false);
        }
    });
    user.succeed(&["share", "remove", &id, &left_id]);
    assert!(!server.requests().iter().any(|line| line.starts_with("PATCH") && line.contains(&left_id)));
    server.tell_the_truth();
    assert_eq!(user.json(&["session", "show", &id])["session"]["keyEpoch"], 2, "it has a new key all the same");
    // A ring of the present epoch that the thief has made, granted by a key of the thief's own.
    let ring = KeyRing::generate().next().unwrap();
    let grant = Grant {
        session,
        recipient: thief_id.parse().unwrap(),
        account: &thief_key,
        level: ShareLevel::View,
        content_epoch: 1,
        recipient_epoch: 1,
    };
    let made_up = SharedRing::seal(&ring, &content_key(&thief), (grant, None), &AccountKey::generate(), None).unwrap();
    let mut made = removed.clone();
    (made["userId"], made["encryptedKey"]) = (json!(thief_id), json!(made_up.to_text()));
    let path = format!("GET /v1/sessions/{id}/shares");
    server.lie(move |line, answer| {
        if line.starts_with(&path) {
            answer["shares"].as_array_mut().unwrap().extend([made.clone(), removed.clone()]);
        }
    });
    let ended = user.run(&["session", "rekey", &id]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    for nobody in [&thief_id, &left_id] {
        assert!(ended.err.contains(&format!("{nobody} does not get the new key")), "{}", ended.err);
        assert!(!server.requests().iter().any(|line| line.starts_with("PATCH") && line.contains(nobody)));
    }
    assert!(!ended.err.contains(&friend_id), "{}", ended.err);
    server.tell_the_truth();
    user.succeed(&["session", "send", &id, "for the friend"]);
    // An admin shares on, and the owner's next key goes to whom they have chosen.
    friend.succeed(&["share", "add", &id, &left_id]);
    user.succeed(&["session", "rekey", &id]);
    user.succeed(&["session", "send", &id, "for both"]);
    for reader in [&friend, &left] {
        let lines = reader.json_lines(&["session", "read", &id]);
        assert_eq!(lines.last().unwrap()["body"]["text"], "for both");
    }
}

#[test]
fn a_key_from_nobody_is_not_used_by_a_guest() {
    let server = LyingServer::start();
    let owner = User::new(Some(&server.direct));
    owner.succeed(&["login"]);
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["id"].as_str().unwrap().to_owned();
    let guest = User::new(Some(&server.url));
    let account = guest.json(&["login"]);
    let guest_id = account["id"].as_str().unwrap();
    owner.succeed(&["share", "add", &session, guest_id, "--level", "edit"]);
    guest.succeed(&["session", "send", &session, "hello"]);
    let grant = Grant {
        session: session.parse().unwrap(),
        recipient: guest_id.parse().unwrap(),
        account: account["publicKey"].as_str().unwrap(),
        level: ShareLevel::Edit,
        content_epoch: 1,
        recipient_epoch: 1,
    };
    let ring = KeyRing::generate();
    let made_up =
        SharedRing::seal(&ring, &content_key(&guest), (grant, None), &AccountKey::generate(), None).unwrap().to_text();
    let path = format!("GET /v1/sessions/{session}");
    server.lie(move |line, answer| {
        if line == path {
            answer["encryptedKey"] = json!(made_up);
        }
    });
    for command in [["session", "send", &session, "secret", "--force"].as_slice(), &["session", "read", &session]] {
        let said = guest.fail(command);
        assert!(said.contains("was not given to you by a device of its owner"), "{said}");
    }
    server.tell_the_truth();
    guest.succeed(&["session", "send", &session, "hello"]);
}

#[test]
fn a_damaged_state_of_the_clients_stops_no_removal() {
    let server = LyingServer::start();
    let (user, _, _) = victim(&server);
    let thief = User::new(None);
    add(&user, &thief, &["--role", "linked"]);
    let token = thief.succeed(&["token"]);
    let sent = std::process::Command::new("curl")
        .args(["-s", "-f", "-X", "PATCH", "-H", "content-type: application/json"])
        .args(["-H", &format!("Authorization: Bearer {}", token.trim())])
        .args(["-d", r#"{"clientState":"AAAA","expectedVersion":0}"#])
        .arg(format!("{}/v1/account", server.direct))
        .output();
    assert!(sent.unwrap().status.success());
    let devices = user.json(&["devices"])["devices"].as_array().unwrap().clone();
    let lost =
        devices.iter().find(|device| device["role"] == "linked").unwrap()["publicKey"].as_str().unwrap().to_owned();
    let ended = user.run(&["devices", "remove", &lost, "--yes"]);
    assert!(ended.code == 0 && ended.err.contains("begin with an empty one"), "{}", ended.err);
    let friend = User::new(Some(&server.direct));
    let id = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    let session = user.json(&["session", "create"])["session"]["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session, &id]);
}

#[test]
fn an_account_key_that_one_device_has_seen_counts_on_all() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let (session, second, friend) = (session.to_string(), User::new(None), User::new(Some(&server.direct)));
    let id = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session, &id]);
    add(&user, &second, &[]);
    let (path, swapped) = (format!("GET /v1/users/{id}"), AccountKey::generate().public_key());
    server.lie(move |line, answer| {
        if line == path {
            answer["publicKey"] = json!(swapped);
        }
    });
    let said = second.fail(&["share", "add", &session, &id, "--level", "edit"]);
    assert!(said.contains("is not the one that was seen before"), "{said}");
    server.tell_the_truth();
    second.succeed(&["share", "add", &session, &id, "--level", "edit"]);
    friend.succeed(&["session", "send", &session, "hello"]);
}
