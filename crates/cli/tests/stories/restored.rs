//! A server whose data was restored from a backup.

use std::process::Command;

use crate::ensemble::{up_at, wait_for_runner};
use crate::live::{seen, turns};
use crate::place::Place;
use ensemble_testkit::free_port;

#[test]
fn a_live_session_goes_on_after_a_restore() {
    let place = Place::new();
    let user = &place.user;
    let listen = format!("127.0.0.1:{}", free_port());
    let start = || {
        let started = up_at(user, &["up", "--json", "--listen", &listen, "--data", "data"]).0;
        wait_for_runner(user);
        started
    };
    let copy = |from: &str, to: &str| {
        let copied = Command::new("cp").args(["-a", from, to]).current_dir(user.home()).status().unwrap();
        assert!(copied.success());
    };
    let first = start();
    let session = place.start(&["claude", "--model", "claude-sonnet-4-5", "[[say one]]"]);
    turns(user, &session, 1);
    assert_eq!(first.interrupt(), 0);
    copy("data", "backup");
    let second = start();
    for (number, word) in ["two", "three"].into_iter().enumerate() {
        user.succeed(&["prompt", &session, &format!("[[say {word}]]")]);
        turns(user, &session, number + 2);
    }
    assert_eq!(second.interrupt(), 0);
    std::fs::remove_dir_all(user.home().join("data")).unwrap();
    copy("backup", "data");

    let _third = start();
    user.succeed(&["prompt", &session, "[[say four]]"]);
    let says = |log: &[serde_json::Value], text: &str| {
        log.iter().any(|body| body["text"].as_str().is_some_and(|said| said.contains(text)))
    };
    let (_, log) = seen(user, &session, "the answer", |log| {
        let is_answer = |body: &serde_json::Value| body["type"] == "text" && body["text"] == "four";
        log.iter().any(is_answer).then_some(())
    });
    assert!(says(&log, "older state of this session"), "{log:#?}");
    assert!(!says(&log, "three"), "it is in no backup");
}
