//! The lies of `tests/lies.json` after a person was removed from a session, or lost a right, while that is not finished.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::lies::{refused, sign_up, victim, writes};
use crate::lies_host::Hosted;
use crate::lies_table::{Cast, Expect, Row, problem};
use crate::live::{host_of, log, until};
use crate::lying::LyingServer;

/// What the owner's computer keeps of these sessions.
fn kept(user: &User, what: &str) -> Value {
    let settings: Value = serde_json::from_slice(&std::fs::read(user.files().join("settings.json")).unwrap()).unwrap();
    settings[what].as_object().unwrap().values().next().cloned().unwrap_or(Value::Null)
}

/// The server takes the removal of a person, and then fails.
pub(crate) fn unfinished_removal(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let ((user, _, session), (_friend, friend_id)) = (victim(server), sign_up(&server.direct));
        let id = session.to_string();
        user.succeed(&["share", "add", &id, &friend_id]);
        server.refuse_with(|line| line.starts_with("PATCH ").then(|| (500, problem(500))));
        user.fail(&["share", "remove", &id, &friend_id]);
        server.tell_the_truth();
        let cast = Cast::from([("session", json!(id))]);
        let send = ["session", "send", &id, "secret", "--force"];
        row.tell(server, &cast, || match row.expect {
            Expect::NotWritten => refused(row, server, &user, &[&send, &["share", "link", &id]]),
            _ => {
                // It is said once, and stops nothing else.
                let said = [(); 3].map(|()| (user.run(&["session", "list"]), server.lied().len()));
                assert!(said.iter().all(|(ended, _)| ended.code == 0), "{}", said[0].0.err);
                let asked = said[0].1;
                assert!(asked > 0 && said[2].1 == asked, "it is not asked each time");
                let is_said = said.map(|(ended, _)| ended.err.contains(&format!("session {id} is not there")));
                assert_eq!(is_said, [true, false, false]);
            }
        });
        assert_eq!(kept(&user, "removedShares"), json!({ &id: [friend_id] }));
        // The server says that no new key is needed.
        server.lie(|_, answer| answer.get_mut("rekeyNeeded").into_iter().for_each(|needed| *needed = json!(false)));
        writes(row, (&user, &id), 2);
        server.tell_the_truth();
        assert_eq!(kept(&user, "removedShares"), json!({}));
    }
    // A session that was deleted elsewhere is forgotten with the person's own deletion.
    let ((user, _, session), (_friend, friend_id)) = (victim(server), sign_up(&server.direct));
    let id = session.to_string();
    user.succeed(&["share", "add", &id, &friend_id]);
    server.refuse_with(|line| line.starts_with("PATCH ").then(|| (500, problem(500))));
    user.fail(&["share", "remove", &id, &friend_id]);
    server.refuse_with(|line| line.contains("/v1/sessions/").then(|| (404, problem(404))));
    user.succeed(&["session", "list"]);
    assert_ne!(kept(&user, "missingSessions"), json!({}));
    user.succeed(&["session", "delete", &id, "--yes"]);
    server.tell_the_truth();
    assert_eq!([kept(&user, "removedShares"), kept(&user, "missingSessions")], [json!({}), json!({})]);
}

/// The machine is away, so nothing but the server says what has become of the right.
pub(crate) fn unconfirmed_right(server: &LyingServer, rows: &[Row]) {
    let (hosted, (_guest, guest_id)) = (Hosted::new(server), sign_up(&server.direct));
    let (user, id) = (&hosted.user, hosted.session.to_string());
    user.succeed(&["share", "add", &hosted.name, &guest_id, "--level", "edit"]);
    let host = Pid::from_raw(i32::try_from(host_of(user).unwrap()).unwrap());
    kill(host, Signal::SIGSTOP).unwrap();
    assert_eq!(user.run(&["share", "change", &hosted.name, &guest_id, "--level", "view"]).code, 5);
    let cast = Cast::from([("session", json!(id)), ("guest", json!(guest_id))]);
    for row in rows {
        row.tell(server, &cast, || user.succeed(&["status"]));
        assert!(kept(user, "revocations")[&id][&guest_id].is_object(), "{}", row.id);
    }
    // The server shows nothing that the machine has said, as if they had never had a right.
    let messages = format!("/v3/sessions/{id}/messages");
    server.lie(move |line, answer| {
        if line.contains(&messages) && !line.contains("/stream") && line.starts_with("GET") {
            answer["messages"] = json!([]);
        }
    });
    assert_eq!(user.run(&["share", "add", &hosted.name, &guest_id, "--level", "view"]).code, 5);
    assert!(!server.lied().is_empty());
    server.tell_the_truth();
    let receipts = |log: &[Value]| log.iter().filter(|body| body["type"] == "receipt").count();
    let before = receipts(&log(user, &hosted.name));
    kill(host, Signal::SIGCONT).unwrap();
    until("the machine", || (receipts(&log(user, &hosted.name)) > before).then_some(()));
    let removed = user.run(&["share", "remove", &hosted.name, &guest_id]);
    assert!(removed.code == 0 && removed.err.contains("takes no commands from them"), "{}", removed.err);
    assert_eq!(kept(user, "revocations"), json!({}));
}
