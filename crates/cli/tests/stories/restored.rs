//! A server whose data was restored from a backup.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ensemble_testkit::free_port;
use serde_json::{Value, json};

use crate::ensemble::{Running, User, up_at, wait_for_runner};
use crate::lies::sign_up;
use crate::lies_table::problem;
use crate::linking::add;
use crate::live::{assert_whole, host_of, kill, log, seen, turns, until};
use crate::lying::LyingServer;
use crate::place::Place;

/// A server that a person starts again and again, with its data in a folder of their home.
struct Server<'a> {
    user: &'a User,
    arguments: Vec<String>,
}

impl<'a> Server<'a> {
    fn of(user: &'a User, more: &[&str]) -> Self {
        Self::at(user, &format!("127.0.0.1:{}", free_port()), more)
    }

    fn at(user: &'a User, listen: &str, more: &[&str]) -> Self {
        let mut arguments = ["up", "--json", "--listen", listen, "--data", "data"].map(str::to_owned).to_vec();
        arguments.extend(more.iter().map(|more| (*more).to_owned()));
        Self { user, arguments }
    }

    fn start(&self) -> Running {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        up_at(self.user, &arguments).0
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = Command::new("cp").args(["-a", from, to]).current_dir(self.user.home()).status().unwrap();
        assert!(copied.success());
    }

    /// Puts the data back as they were.
    fn restore(&self) {
        std::fs::remove_dir_all(self.user.home().join("data")).unwrap();
        self.copy("backup", "data");
    }
}

/// Restores a server from a backup: it is copied after the first turn of a session, runs for three more turns, and is replaced by the copy.
/// Returns the session and its log. `prompt`: the prompt for a word.
fn set_back(
    place: &Place,
    server: &Server<'_>,
    start: impl Fn() -> Running,
    prompt: impl Fn(&str) -> String,
) -> (String, Vec<Value>) {
    let (user, first) = (&place.user, start());
    let session = place.start(&["claude", "--model", "claude-sonnet-4-5", "[[say one]]"]);
    turns(user, &session, 1);
    assert_eq!(first.interrupt(), 0);
    server.copy("data", "backup");
    let second = start();
    for (number, word) in ["two", "three", "four"].into_iter().enumerate() {
        user.succeed(&["prompt", &session, &prompt(word)]);
        turns(user, &session, number + 2);
    }
    let whole = log(user, &session);
    assert_eq!(second.interrupt(), 0);
    server.restore();
    (session, whole)
}

fn says(log: &[Value], kind: &str, text: &str) -> usize {
    let is_said = |body: &&Value| body["type"] == kind && body["text"].as_str().is_some_and(|said| said.contains(text));
    log.iter().filter(is_said).count()
}

/// Prompts once more. Every message of the machine is there then, once and in order, and people hear once what has happened.
#[track_caller]
fn continues(user: &User, session: &str) -> Vec<Value> {
    user.succeed(&["prompt", session, "[[say after it]]"]);
    let (_, log) = seen(user, session, "the turn after the restore", |log| {
        let said = log.iter().rposition(|body| body["type"] == "text" && body["text"] == "after it")?;
        let ended = log.iter().rposition(|body| body["type"] == "turn" && body["state"] == "ended")?;
        (ended > said).then_some(())
    });
    for word in ["one", "two", "three", "four"] {
        assert_eq!(says(&log, "text", word), 1, "{word}: {log:#?}");
    }
    assert_eq!(says(&log, "error", "older state of this session"), 1, "{log:#?}");
    assert_whole(&log);
    log
}

#[test]
fn a_live_session_continues_after_a_restore() {
    let place = Place::new();
    let user = &place.user;
    let server = Server::of(user, &[]);
    let start = || {
        let started = server.start();
        wait_for_runner(user);
        started
    };
    let (session, _) = set_back(&place, &server, start, |word| format!("[[say {word}]]"));

    let _third = start();
    let log = continues(user, &session);
    assert_eq!(says(&log, "prompt", "[[say three]]"), 0, "what people have sent is in no backup");
}

#[test]
fn a_host_that_is_killed_after_a_restore_leaves_no_gap() {
    let place = Place::new();
    let user = &place.user;
    let server = Server::of(user, &["--no-runner"]);
    let (session, _) = set_back(&place, &server, || server.start(), |word| format!("[[say {word}]]"));

    // The host is the one that has seen all of it, and it ends as soon as the server has something again.
    let _third = server.start();
    let host = host_of(user).unwrap();
    until("something that is sent again", || (says(&log(user, &session), "text", "two") == 1).then_some(()));
    kill(host);
    until("the end of the host", || (host_of(user) != Some(host)).then_some(()));
    continues(user, &session);
}

/// Whether messages of the machine are sent with this request.
fn sends(line: &str) -> bool {
    line.starts_with("POST ") && line.contains("/messages")
}

#[test]
fn a_host_that_is_killed_between_two_parts_sends_the_rest() {
    let place = Place::new();
    let user = &place.user;
    let listen = format!("127.0.0.1:{}", free_port());
    let between = LyingServer::before(&listen);
    let server = Server::at(&between.operator, &listen, &["--no-runner", "--public-url", &between.url]);
    let start = || {
        let started = server.start();
        user.succeed(&["--server", &between.url, "login"]);
        started
    };
    // More than fits into one request.
    let (session, whole) = set_back(&place, &server, start, |word| format!("[[repeat 60000 {word} ]]"));
    let own = |log: &[Value]| log.iter().filter(|body| body["n"].is_u64()).count();

    let (host, parts) = (host_of(user).unwrap(), Arc::new(AtomicUsize::new(0)));
    let sent = parts.clone();
    between.lie(move |line, _| {
        // The server has the first part, and the host does not know it.
        if sends(line) && sent.fetch_add(1, Ordering::SeqCst) == 0 {
            kill(host);
        }
    });
    let _third = server.start();
    until("the end of the host", || (host_of(user) != Some(host)).then_some(()));
    between.tell_the_truth();
    let part = own(&log(user, &session));
    assert!(parts.load(Ordering::SeqCst) >= 1 && part < own(&whole), "{part} of {}", own(&whole));
    user.succeed(&["prompt", &session, "[[say after it]]"]);
    let is_said = |log: &[Value]| (says(log, "text", "after it") == 1).then_some(());
    let ((), log) = seen(user, &session, "the turn after the restore", is_said);
    let texts = |log: &[Value], word: &str| -> Vec<Value> {
        log.iter().filter(|body| body["text"].as_str().is_some_and(|text| text.contains(word))).cloned().collect()
    };
    for word in ["two ", "three ", "four "] {
        let of_machine = |log: &[Value]| -> Vec<Value> {
            texts(log, word).into_iter().filter(|body| body["type"] == "text").collect()
        };
        assert_eq!(of_machine(&log), of_machine(&whole), "{word}");
    }
    let counts: Vec<u64> = log.iter().filter_map(|body| body["n"].as_u64()).collect();
    assert_eq!(counts, (1..=counts.len() as u64).collect::<Vec<_>>(), "once, in order and without a gap");
    assert_eq!(says(&log, "error", "older state of this session"), 1);
}

/// The texts that a person reads of a session of people, and the epoch of the key of the last one.
fn reads(user: &User, session: &str) -> (Vec<Value>, Value) {
    let lines = user.json_lines(&["session", "read", session]);
    let epoch = lines.last().unwrap()["message"]["keyEpoch"].clone();
    (lines.into_iter().map(|line| line["body"]["text"].clone()).collect(), epoch)
}

#[test]
fn a_session_of_people_gets_keys_above_the_lost_ones() {
    let listen = format!("127.0.0.1:{}", free_port());
    let between = LyingServer::before(&listen);
    let server = Server::at(&between.operator, &listen, &["--no-runner", "--public-url", &between.url]);
    let first = server.start();
    let ((owner, _), (friend, friend_id)) = (sign_up(&between.url), sign_up(&between.url));
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["ref"].as_str().unwrap().to_owned();
    owner.succeed(&["share", "add", &session, &friend_id]);
    owner.succeed(&["session", "send", &session, "one"]);
    assert_eq!(first.interrupt(), 0);
    server.copy("data", "backup");
    let second = server.start();
    owner.succeed(&["session", "rekey", &session]);
    owner.succeed(&["session", "rekey", &session]);
    owner.succeed(&["session", "send", &session, "two"]);
    assert_eq!(reads(&friend, &session), (vec![json!("one"), json!("two")], json!(3)));
    assert_eq!(second.interrupt(), 0);
    server.restore();

    let third = server.start();
    let read = owner.run(&["session", "read", &session]);
    assert!(read.code == 0 && read.out.contains("one"), "{}", read.err);
    assert!(read.err.contains("has lost the newest 2 keys"), "{}", read.err);
    assert!(friend.fail(&["session", "read", &session]).contains("an older key"), "only the owner can mend that");
    // The server fails when it has two of the three keys.
    let changes = AtomicUsize::new(0);
    between.refuse_with(move |line| {
        let is_change = line.starts_with("PATCH /v1/sessions/");
        (is_change && changes.fetch_add(1, Ordering::SeqCst) >= 2).then(|| (500, problem(500)))
    });
    owner.fail(&["session", "send", &session, "three"]);
    between.tell_the_truth();
    let sent = owner.run(&["session", "send", &session, "three"]);
    // Who was given the last of the lost keys may have been removed since, as far as the server knows.
    let left_out = format!("{friend_id} does not get the new key");
    assert!(sent.code == 0 && sent.err.contains(&left_out), "{}", sent.err);
    owner.succeed(&["share", "add", &session, &friend_id]);
    for user in [&owner, &friend] {
        assert_eq!(reads(user, &session), (vec![json!("one"), json!("three")], json!(4)));
    }
    // A server could show an old key again and again, until the ring is full.
    assert_eq!(third.interrupt(), 0);
    server.restore();
    let _fourth = server.start();
    assert!(owner.fail(&["session", "send", &session, "four"]).contains("at most once an hour"));
}

/// A device that was away while a person was removed makes another key of the same epoch at a server that was restored, and gives it to that
/// person. The device that has removed them writes nothing under it.
#[test]
fn a_removed_person_does_not_come_back_with_another_key_of_the_same_epoch() {
    let listen = format!("127.0.0.1:{}", free_port());
    let operator = User::new(None);
    let server = Server::at(&operator, &listen, &["--no-runner"]);
    let first = server.start();
    let url = format!("http://{listen}");
    let ((owner, _), laptop) = (sign_up(&url), User::new(Some(&url)));
    let ((friend, friend_id), (mallory, mallory_id)) = (sign_up(&url), sign_up(&url));
    add(&owner, &laptop, &[]);
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["ref"].as_str().unwrap().to_owned();
    for guest in [&friend_id, &mallory_id] {
        owner.succeed(&["share", "add", &session, guest]);
    }
    owner.succeed(&["session", "send", &session, "one"]);
    assert_eq!(first.interrupt(), 0);
    server.copy("data", "backup");
    let second = server.start();
    owner.succeed(&["share", "remove", &session, &mallory_id]);
    owner.succeed(&["session", "send", &session, "two"]);
    assert_eq!(second.interrupt(), 0);
    server.restore();

    let _third = server.start();
    laptop.succeed(&["session", "rekey", &session]);
    laptop.succeed(&["session", "send", &session, "three"]);
    let three = || vec![json!("one"), json!("three")];
    assert_eq!(reads(&mallory, &session), (three(), json!(2)), "the laptop and the server know of no removal");
    let read = owner.run(&["session", "read", &session]);
    assert!(read.err.contains("has lost the newest key"), "{}", read.err);
    let sent = owner.run(&["session", "send", &session, "four"]);
    let left_out = format!("{mallory_id} does not get the new key");
    assert!(sent.code == 0 && sent.err.contains(&left_out), "{}", sent.err);
    laptop.succeed(&["session", "send", &session, "five"]);
    let five = [three(), vec![json!("four"), json!("five")]].concat();
    for user in [&owner, &laptop, &friend] {
        assert_eq!(reads(user, &session), (five.clone(), json!(3)));
    }
    assert!(!mallory.run(&["session", "read", &session]).out.contains("four"));
}
