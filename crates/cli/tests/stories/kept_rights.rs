//! `devices remove --keep-rights`: what the removed device has shared stays shared, even if the command is killed, and in sessions that get
//! their new key later.

use serde_json::{Value, json};

use crate::ensemble::User;
use crate::killed::{killed_at, last, shared};
use crate::linking::add;
use crate::live::guest;
use crate::lying::LyingServer;

/// A second device of the owner shares their session with a friend. Returns the device's key and the friend.
fn shared_by_phone(server: &LyingServer, owner: &User, session: &str) -> (String, User) {
    let phone = User::new(None);
    add(owner, &phone, &["--role", "linked"]);
    let (friend, friend_id) = guest(&server.url);
    phone.succeed(&["share", "add", session, &friend_id, "--level", "edit"]);
    owner.succeed(&["session", "send", session, "before"]);
    assert_eq!(last(&friend, session).0, "before");
    (phone.json(&["whoami"])["device"]["publicKey"].as_str().unwrap().to_owned(), friend)
}

fn whose_id(user: &User) -> String {
    user.json(&["whoami"])["id"].as_str().unwrap().to_owned()
}

fn wishes(owner: &User) -> Value {
    let settings = std::fs::read(owner.files().join("settings.json")).unwrap();
    serde_json::from_slice::<Value>(&settings).unwrap()["keepRights"].clone()
}

#[test]
fn what_is_kept_is_kept_by_the_command_that_finishes_a_removal() {
    let server = LyingServer::start();
    let (owner, friend, session) = shared(&server);
    let (phone, friend_of_phone) = shared_by_phone(&server, &owner, &session);
    let epoch = || owner.json(&["session", "show", &session])["session"]["keyEpoch"].as_i64().unwrap();
    let before = epoch();
    let is_change = |_, line: &str| line == "POST /v1/devices";
    assert!(killed_at(&server, &owner, &["devices", "remove", &phone, "--yes", "--keep-rights"], is_change));
    assert!(wishes(&owner)[&server.url][&phone].is_string(), "the digest of the list that removes it");
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && next.err.contains("Finishing the removal"), "{}", next.err);
    let shared = next.err.lines().filter(|line| line.contains("The removed device had shared session"));
    let [kept] = &*shared.collect::<Vec<_>>() else { panic!("{}", next.err) };
    assert!(kept.contains(&whose_id(&friend_of_phone)) && kept.contains("(edit)"), "{kept}");
    assert_eq!((epoch(), wishes(&owner)), (before + 1, json!({})));
    owner.succeed(&["session", "send", &session, "after"]);
    for friend in [friend, friend_of_phone] {
        assert_eq!(last(&friend, &session), ("after".into(), (before + 1).into()));
    }
}

#[test]
fn what_is_kept_is_kept_where_the_new_key_comes_later() {
    let server = LyingServer::start();
    let (owner, friend, session) = shared(&server);
    let remove = |keep: &[&str]| {
        let (phone, friend_of_phone) = shared_by_phone(&server, &owner, &session);
        // The session was last used long ago.
        server.lie(|line, answer| {
            let listed = answer.get_mut("sessions").filter(|_| line.starts_with("GET /v1/sessions"));
            for session in listed.and_then(Value::as_array_mut).into_iter().flatten() {
                session["updatedAt"] = json!("2020-01-01T00:00:00.000Z");
                session["online"] = json!(false);
            }
        });
        let removed = owner.json(&[&["devices", "remove", &phone, "--yes"], keep].concat());
        server.tell_the_truth();
        assert_eq!(removed["rekeyed"], 0, "{removed}");
        (friend_of_phone, removed["shares"].clone())
    };
    let (kept, shares) = remove(&["--keep-rights"]);
    let reference = owner.json(&["session", "show", &session])["session"]["ref"].clone();
    assert_eq!(shares, json!([{"session": reference, "userId": whose_id(&kept), "level": "edit"}]));
    // The phone has the key of now.
    let refused = kept.fail(&["session", "send", &session, "too early"]);
    assert!(refused.contains("A device was removed since"), "{refused}");
    let (_, before) = last(&owner, &session);
    owner.succeed(&["session", "send", &session, "after"]);
    let after = last(&friend, &session);
    assert!(after.0 == "after" && after.1 != before);
    assert_eq!(last(&kept, &session), after);

    let (lost, shares) = remove(&[]);
    assert_eq!(shares, json!([]));
    let sent = owner.run(&["session", "send", &session, "without them"]);
    assert!(sent.code == 0 && sent.err.contains("does not get the new key"), "{}", sent.err);
    assert_eq!(last(&kept, &session).0, "without them");
    assert_eq!(last(&lost, &session).0, Value::Null);
}
