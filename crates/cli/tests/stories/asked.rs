//! What the server says of a session's key makes at most one an hour, prevents none, and stops no one.

use ensemble_testkit::free_port;
use serde_json::{Value, json};

use crate::ensemble::{Running, User, up_at};
use crate::lies::victim;
use crate::linking::add;
use crate::live::{guest, log, turns};
use crate::lying::LyingServer;
use crate::scripted;
use crate::sessions::record_of;

/// The epoch of the key under which the newest message was written.
fn newest_epoch(user: &User, session: &str) -> Value {
    user.json_lines(&["session", "read", session]).last().unwrap()["message"]["keyEpoch"].clone()
}

#[test]
fn a_server_that_always_asks_for_a_new_key_gets_one_an_hour_and_a_removal_makes_one_at_once() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let id = session.to_string();
    let phone = User::new(Some(&server.direct));
    add(&user, &phone, &[]);
    let path = format!("GET /v1/sessions/{id}");
    server.lie(move |line, answer| {
        if line == path {
            answer["rekeyNeeded"] = json!(true);
        }
    });
    let send = || {
        let sent = user.run(&["session", "send", &id, "text"]);
        assert_eq!(sent.code, 0, "{}", sent.err);
        sent.err.contains("It gets one an hour in this way")
    };
    let write = |times: usize| {
        for _ in 0..times {
            send();
        }
        newest_epoch(&user, &id)
    };
    assert_eq!([send(), send(), send()], [false, true, false], "it says once that the next one waits");
    assert_eq!(newest_epoch(&user, &id), 2);
    let devices = user.json(&["devices"])["devices"].as_array().unwrap().clone();
    let lost = devices.iter().find(|device| device["current"] == false).unwrap()["publicKey"].as_str().unwrap();
    user.succeed(&["devices", "remove", lost, "--yes"]);
    assert_eq!(write(2), 3, "the removal makes one, and no other one follows");
    // As if the hour had passed.
    let file = record_of(&user, &id);
    let mut known: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    known["asked"] = json!(known["asked"].as_u64().unwrap() - 3_600);
    std::fs::write(&file, known.to_string()).unwrap();
    assert_eq!(write(3), 4);
    user.succeed(&["session", "rekey", &id]);
    assert_eq!(write(1), 5, "a person makes one at any time");
}

#[test]
fn what_comes_before_its_key_is_printed_once_and_in_order_when_the_key_comes() {
    let (owner, _programs) = scripted::user();
    let listen = format!("127.0.0.1:{}", free_port());
    let server = LyingServer::before(&listen);
    let _up = up_at(&owner, &["up", "--json", "--listen", &listen, "--public-url", &server.url]);
    let (guest, guest_id) = guest(&server.url);
    let session = owner.succeed(&["claude", "begin", "--detach"]).trim().to_owned();
    turns(&owner, &session, 1);
    owner.succeed(&["share", "add", &session, &guest_id, "--level", "edit"]);
    let before = log(&guest, &session).len();
    let mut follower = Running::start(&guest, &["log", &session, "--follow", "--json"]);
    let mut next = || serde_json::from_str::<Value>(&follower.line()).unwrap();
    let mut lines: Vec<Value> = (0..before).map(|_| next()).collect();

    // The guest is shown the key that they had first.
    let id = owner.json(&["session", "show", &session])["session"]["id"].as_str().unwrap().to_owned();
    let path = format!("GET /v1/sessions/{id}");
    let first = std::sync::Mutex::new(None);
    server.lie(move |line, answer| {
        if line == path && answer["encryptedKey"].is_string() {
            let mut first = first.lock().unwrap();
            answer["encryptedKey"] = first.get_or_insert_with(|| answer["encryptedKey"].clone()).clone();
        }
    });
    assert_eq!(log(&guest, &session).len(), before);
    owner.succeed(&["session", "rekey", &session]);
    for (turn, prompt) in ["two", "three"].into_iter().enumerate() {
        owner.succeed(&["prompt", &session, prompt]);
        turns(&owner, &session, turn + 2);
    }
    let read = guest.run(&["log", &session]);
    assert!(read.err.contains("a key that has not reached this device yet"), "{}{}", read.out, read.err);
    assert!(read.out.contains("said begin") && !read.out.contains("said two"), "{}", read.out);
    assert_eq!(log(&guest, &session).len(), before, "what waits is not called unreadable");

    server.tell_the_truth();
    owner.succeed(&["share", "change", &session, &guest_id, "--level", "edit", "--approve"]);
    owner.succeed(&["prompt", &session, "the end"]);
    while lines.last().is_none_or(|line| line["body"]["text"] != "said the end") {
        lines.push(next());
    }
    let order: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert_eq!(order, (1..=order.len() as u64).collect::<Vec<_>>());
    let said = |text: &str| lines.iter().filter(|line| line["body"]["text"] == text).count();
    assert_eq!([said("said two"), said("said three"), said("said the end")], [1, 1, 1]);
}
