//! Keys that are sealed once more, moved, kept back, or given without a signature: what a person signs is what happens.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ensemble_client::devices::sign_list;
use ensemble_client::{Client, Credential, Known};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding};
use ensemble_types::devices::{ChangeDevices, SealedContentRing};
use ensemble_types::ids::{MachineId, SessionId};
use serde_json::{Value, json};

use crate::ensemble::{User, up};
use crate::lies::{content_key, victim};
use crate::linking::add;
use crate::live::{log, request, turns, until};
use crate::lying::LyingServer;
use crate::place::Place;
use crate::removed::{Thief, knows};
use crate::terminal::Terminal;

fn sealed_key(user: &User, session: SessionId) -> String {
    let shown = user.json(&["session", "show", &session.to_string()]);
    shown["session"]["encryptionKey"].as_str().unwrap().to_owned()
}

/// Removes a device from its account's list, and gives no session a new key: as a program does that is killed in between.
/// Returns the version of the new list.
pub(crate) fn remove_only(by: &Thief, url: &str, removed: &str) -> u32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(url).credential(Credential::Device(by.key.clone())).build().unwrap();
        let account = client.account().await.unwrap().public_key;
        let list = client.newest_list(by.user, Known::Account(&account)).await.unwrap().unwrap();
        let contents = by.contents.next().unwrap();
        let mut next = list.body().clone();
        next.devices.retain(|device| device.key != removed);
        // This device was not given the names.
        next.devices.iter_mut().for_each(|device| device.name = None);
        (next.version, next.prev) = (next.version + 1, Some(list.digest_text()));
        (next.content_epoch, next.content_public_key) = (contents.epoch(), contents.public().unwrap().to_text());
        let signed = sign_list(&next, &by.key).unwrap();
        let list = list.next(&signed).unwrap();
        let seal = |device: &ensemble_types::devices::ListedDevice| {
            let sealed = contents.seal_to(device, &account).unwrap();
            (device.key.clone(), SealedContentRing::new(sealed).unwrap())
        };
        let sealed = list.openers().map(seal).collect();
        let change = ChangeDevices { list: Some(signed), sealed, ..ChangeDevices::default() };
        client.change_devices(&change).await.unwrap();
        next.version
    })
}

fn key_epoch(user: &User, session: &str) -> Value {
    user.json(&["session", "show", session])["session"]["keyEpoch"].clone()
}

/// A device is removed while an agent works, and no program of the owner has made a new key: the machine makes it before it writes, and
/// guests get it from the owner's next program.
#[test]
fn a_machine_writes_nothing_that_a_removed_device_opens() {
    let place = Place::new();
    let user = &place.user;
    let (_up, url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say word-before]]"]);
    turns(user, &session, 1);
    let shown = user.json(&["session", "show", &session])["session"].clone();
    let id = shown["id"].as_str().unwrap().parse().unwrap();
    let machine: MachineId = shown["machineId"].as_str().unwrap().parse().unwrap();
    let (tablet, friend) = (User::new(None), User::new(Some(&url)));
    add(user, &tablet, &[]);
    let them = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session, &them]);
    user.succeed(&["session", "rename", &session, "Kept"]);
    let (owner, mut thief) = (Thief::of(user, &url), Thief::of(&tablet, &url));
    let data = user.files().join("data");
    let opens = |thief: &mut Thief, data: &Path, word| knows(&thief.opens_hosted(data, id, &machine), word);
    assert!(opens(&mut thief, &data, "word-before"), "it could read it before");
    user.succeed(&[
        "prompt",
        &session,
        "[[run touch began; until test -e go; do sleep 0.1; done; echo after-$((40+2))]]",
    ]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    let version = format!(r#"\"version\":{}"#, remove_only(&owner, &url, &thief.key.public_key()));
    // A hint says to the machine that the list is another one.
    let list = user.files().join("hosts").join(machine.as_str()).join("owner.json");
    until("the newest list", || std::fs::read_to_string(&list).is_ok_and(|list| list.contains(&version)).then_some(()));
    std::fs::write(place.file("go"), "").unwrap();
    turns(user, &session, 2);
    assert!(log(user, &session).iter().any(|body| body.to_string().contains("after-42")));
    assert_eq!(key_epoch(user, &session), 2);
    // The machine has signed the title again, which its owner had given, and the directory.
    let metadata = user.json(&["session", "show", &session])["metadata"].clone();
    let directory = place.file("").canonicalize().unwrap().display().to_string();
    assert_eq!((&metadata["title"], &metadata["path"]), (&json!("Kept"), &json!(directory)));
    assert!(!opens(&mut thief, &data, "after-42"));
    // The guest has the key of before, until a program of the owner writes.
    assert!(!friend.succeed(&["log", &session]).contains("after-42"));
    user.succeed(&["prompt", &session, "[[say word-later]]"]);
    turns(user, &session, 3);
    until("the guest's key", || {
        let read = friend.run(&["log", &session]).out;
        (read.contains("after-42") && read.contains("word-later")).then_some(())
    });
    assert!(!opens(&mut thief, &data, "word-later"));
}

/// The owner stops sharing while an agent works, and the server keeps the next key from the machine.
#[test]
fn a_machine_writes_nothing_that_a_removed_guest_opens() {
    let (server, place) = (LyingServer::start(), Place::new());
    let user = &place.user;
    // The owner's program makes the next key first, also on a busy machine.
    std::fs::write(user.files().join("runner.yaml"), "timing: {rekeyGraceMs: 30000}\n").unwrap();
    user.succeed(&["--server", &server.url, "login"]);
    let session = place.start(&["claude", "[[say begin]]"]);
    turns(user, &session, 1);
    let friend = User::new(Some(&server.direct));
    let them = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session, &them]);
    let epoch = key_epoch(user, &session);
    let work = "[[run touch began; until test -e go; do sleep 0.1; done; echo after-$((40+2))]]";
    user.succeed(&["prompt", &session, work]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    until("the command", || place.file("began").exists().then_some(()));
    let keep_back = || {
        let epoch = epoch.clone();
        server.lie(move |_, answer| {
            if let Some(session) = answer.as_object_mut().filter(|answer| answer.contains_key("rekeyNeeded")) {
                session.remove("hostKey");
                session.insert("keyEpoch".to_owned(), epoch.clone());
                // So the owner's program sends the machine its word under the key that there is.
                session.insert("rekeyNeeded".to_owned(), json!(false));
            }
        });
    };
    keep_back();
    let removed = user.run(&["share", "remove", &session, &them]);
    assert!(removed.code == 0 && removed.err.contains("takes no commands"), "{}", removed.err);
    keep_back();
    std::fs::write(place.file("go"), "").unwrap();
    until("why nothing is written", || {
        let shown = user.json(&["session", "show", &session]);
        (shown["session"]["cannotWrite"] == "key_refused").then_some(())
    });
    let written = |line: &String| line.starts_with("POST ") && line.contains("/messages");
    assert!(!server.lied().is_empty() && !server.requests().iter().any(written), "{:?}", server.requests());
    server.tell_the_truth();
    turns(user, &session, 2);
    assert!(log(user, &session).iter().any(|body| body.to_string().contains("after-42")));
    let made = key_epoch(user, &session);
    assert_eq!(made.as_i64(), epoch.as_i64().map(|epoch| epoch + 1), "the one that the owner's program has made");
}

/// A screen of the owner that is open while another program of theirs removes a device.
#[test]
fn an_open_screen_continues_after_a_device_was_removed() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    let tablet = User::new(None);
    add(user, &tablet, &[]);
    let terminal = Terminal::open(user, 100, 30);
    terminal.ensemble("", &format!("attach {session}"));
    terminal.sees("first");
    let key = std::fs::read_to_string(tablet.files().join("account.key")).unwrap();
    user.succeed(&["devices", "remove", &AccountKey::from_text(&key).unwrap().public_key(), "--yes"]);
    assert_eq!(key_epoch(user, &session), 2);
    user.succeed(&["prompt", &session, "[[say second]]"]);
    terminal.sees("second");
    terminal.line("[[say third]]");
    turns(user, &session, 3);
    terminal.sees("third");
    assert!(terminal.is_taken().0, "{:#?}", terminal.lines());
}

/// The server shows an older key first, which a listed device has made, and another one when the session is read again.
#[test]
fn the_key_that_was_judged_is_the_one_that_is_used() {
    let server = LyingServer::start();
    let (user, owner, session) = victim(&server);
    let (id, binding, phone) = (session.to_string(), Binding::Session { session, owner }, User::new(None));
    add(&user, &phone, &[]);
    let (old, thief) = (sealed_key(&user, session), Thief::of(&phone, &server.direct));
    let ring = thief.contents.open_with(|pair| seal::open_ring(&old, pair, binding)).unwrap().ring;
    user.succeed(&["devices", "remove", &thief.key.public_key(), "--yes"]);
    let older = sealed_key(&user, session);
    user.succeed(&["session", "rekey", &id]);
    let theirs = ring.next().unwrap().next().unwrap();
    let theirs = seal::seal_ring(&theirs, &content_key(&user), binding, &thief.key).unwrap();
    let (path, reads) = (format!("GET /v1/sessions/{id}"), AtomicUsize::new(0));
    server.lie(move |line, answer| {
        if line == path {
            let is_first = reads.fetch_add(1, Ordering::Relaxed) == 0;
            answer["encryptionKey"] = json!(if is_first { &older } else { &theirs });
            (answer["keyEpoch"], answer["rekeyNeeded"]) = (json!(if is_first { 2 } else { 3 }), json!(false));
        }
    });
    user.succeed(&["session", "send", &id, "word-after"]);
    server.tell_the_truth();
    assert_eq!(key_epoch(&user, &id), 4, "the thief has the key of epoch 3 that it made");
}

/// The share of a person is not changed by two new keys in a row, because the server is busy. They get the newest one later.
#[test]
fn who_waits_for_a_key_is_not_forgotten_with_the_next_one() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let (id, them) = (session.to_string(), friend.json(&["login"])["id"].as_str().unwrap().to_owned());
    user.succeed(&["share", "add", &id, &them]);
    server.refuse(|line| line.starts_with("PATCH ") && line.contains("/shares/"));
    user.succeed(&["session", "rekey", &id]);
    user.succeed(&["session", "rekey", &id]);
    user.succeed(&["session", "send", &id, "word-after"]);
    assert!(!friend.run(&["session", "read", &id]).out.contains("word-after"));
    server.tell_the_truth();
    user.succeed(&["sessions"]);
    assert!(friend.succeed(&["session", "read", &id]).contains("word-after"));
}
