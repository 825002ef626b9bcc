//! The lies of `tests/lies.json` to the command line: it does what its user sees, or nothing.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxPublicKey, Grant, KeyRing, Purpose, SharedRing, seal_client_state};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::lies_host::{removed_is_read, strangers_are_read};
use crate::lies_removed::{unconfirmed_right, unfinished_removal};
use crate::lies_runs::looked_at;
use crate::lies_table::{Cast, Expect, Row, tell_all};
use crate::lies_while_linking::{another_account, swapped_key};
use crate::linking::add;
use crate::lying::LyingServer;
use crate::removed::Thief;
use crate::signed_runs::less_is_shown;

#[test]
fn the_command_line_does_what_its_user_sees() {
    tell_all(
        "cli",
        &[
            ("an owner uses a session", owner),
            ("an owner uses a session by its ref", by_ref),
            ("a guest uses a session", guest),
            ("a user uses their own account", own_list),
            ("an owner shares with a friend", friends_list),
            ("an owner gives a session a new key", new_key),
            ("an owner writes after a guest has removed a device", guests_epoch),
            ("an owner writes after a removal that has made no key", unfinished_removal),
            ("an owner's machine has not confirmed the end of a right", unconfirmed_right),
            ("an owner chooses a machine by its name", machine),
            ("a device shares a session with a user whom another device knows", shared_state),
            ("an owner removes a device", removal),
            ("a user reads what strangers write to a machine", strangers_are_read),
            ("a guest reads what a removed device writes", removed_is_read),
            ("an owner looks at a run", looked_at),
            ("an owner applies what a task has changed", less_is_shown),
            ("a server says why it refuses", error),
            ("a device is linked", swapped_key),
            ("a device joins an account", another_account),
        ],
    );
}

/// A user of the lying server, with a session.
pub(crate) fn victim(server: &LyingServer) -> (User, UserId, SessionId) {
    let (user, id) = sign_up(&server.url);
    let session: SessionId = create(&user, "Plans")["id"].as_str().unwrap().parse().unwrap();
    user.succeed(&["session", "send", &session.to_string(), "before"]);
    (user, id.parse().unwrap(), session)
}

pub(crate) fn sign_up(url: &str) -> (User, String) {
    let user = User::new(Some(url));
    let id = user.json(&["login"])["id"].as_str().unwrap().to_owned();
    (user, id)
}

fn create(user: &User, title: &str) -> Value {
    user.json(&["session", "create", "--title", title])["session"].clone()
}

pub(crate) fn shown(user: &User, session: &str) -> Value {
    user.json(&["session", "show", session])["session"].clone()
}

/// What the real server answers to this user: JSON, or a text.
pub(crate) fn get(server: &LyingServer, user: &User, path: &str) -> Value {
    let token = format!("Authorization: Bearer {}", user.succeed(&["token"]).trim());
    let url = format!("{}{path}", server.direct);
    let output = std::process::Command::new("curl").args(["-s", "-f", "-H", &token, &url]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!(String::from_utf8(output.stdout).unwrap()))
}

/// The newest list of the user that the user's computer has checked, as it is signed.
pub(crate) fn newest_list(user: &User) -> String {
    let id = user.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    let devices: Value = serde_json::from_slice(&std::fs::read(user.files().join("devices.json")).unwrap()).unwrap();
    let lists = devices.as_object().unwrap().values().next().unwrap();
    lists[id]["body"].as_str().unwrap().to_owned()
}

pub(crate) fn list_of(user: &User) -> Value {
    serde_json::from_str(&newest_list(user)).unwrap()
}

/// The key to which everything of the user is sealed.
pub(crate) fn content_key(user: &User) -> BoxPublicKey {
    BoxPublicKey::from_text(list_of(user)["contentPublicKey"].as_str().unwrap()).unwrap()
}

/// What was sealed, with signer and signature of another seal.
pub(crate) fn moved(sealed: &str, from: &str) -> String {
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    URL_SAFE_NO_PAD.encode([&bytes(from)[..97], &bytes(sealed)[97..]].concat())
}

/// These commands end with an error that says why, and write nothing.
pub(crate) fn refused(row: &Row, server: &LyingServer, user: &User, commands: &[&[&str]]) {
    for command in commands {
        let said = user.fail(command);
        assert!(said.contains(&row.says), "{}: {command:?}: {said}", row.id);
    }
    let writes = |line: &String| {
        let (is_new, is_gone) = (line.starts_with("POST"), line.starts_with("DELETE"));
        is_gone || (is_new && (line.contains("/messages") || line.contains("/shares")))
    };
    assert!(!server.requests().iter().any(writes), "{}: {:?}", row.id, server.requests());
}

/// The lie changes nothing for writing and reading.
pub(crate) fn writes(row: &Row, (user, id): (&User, &str), epoch: i64) {
    let text = format!("in spite of {}", row.id);
    user.succeed(&["session", "send", id, "--force", &text]);
    let lines = user.json_lines(&["session", "read", id]);
    let last = lines.last().unwrap();
    assert_eq!((&last["body"]["text"], &last["message"]["keyEpoch"]), (&json!(text), &json!(epoch)), "{}", row.id);
}

fn owner(server: &LyingServer, rows: &[Row]) {
    let (user, me, session) = victim(server);
    let (phone, (_friend, friend_id)) = (User::new(None), sign_up(&server.direct));
    add(&user, &phone, &[]);
    let (id, other) = (session.to_string(), create(&user, "Other"));
    let binding = Binding::Session { session, owner: me };
    let (first, thief) = (shown(&user, &id), Thief::of(&phone, &server.direct));
    let old = first["encryptionKey"].as_str().unwrap();
    let ring = thief.contents.open_with(|pair| seal::open_ring(old, pair, binding)).unwrap().ring;
    user.succeed(&["devices", "remove", &thief.key.public_key(), "--yes"]);
    user.succeed(&["session", "send", &id, "with the second key"]);
    let seal = |ring: &KeyRing, signer| seal::seal_ring(ring, &content_key(&user), binding, signer).unwrap();
    let (again, stranger) = (seal(&ring, &thief.key), AccountKey::generate());
    let cast = Cast::from([
        ("session", json!(id)),
        ("other_key", other["encryptionKey"].clone()),
        ("other", other),
        ("another_user", json!(UserId::generate())),
        ("made_up", json!(seal(&KeyRing::generate().next().unwrap(), &stranger))),
        ("moved", json!(moved(&again, old))),
        ("again", json!(again)),
        ("first", first),
    ]);
    let send = ["session", "send", &id, "secret", "--force"];
    let all = [
        send.as_slice(),
        &["share", "add", &id, &friend_id],
        &["share", "link", &id],
        &["session", "rekey", &id],
        &["session", "read", &id],
    ];
    for row in rows {
        row.tell(server, &cast, || match row.expect {
            Expect::Refused => refused(row, server, &user, &all),
            Expect::NotWritten => refused(row, server, &user, &[&send]),
            _ => writes(row, (&user, &id), 2),
        });
    }
    user.succeed(&["session", "send", &id, "fine"]);
    // A new key is made here, whatever the server answers to it.
    let made_up = cast["made_up"].clone();
    let path = format!("PATCH /v1/sessions/{id}");
    server.lie(move |line, answer| {
        if line == path {
            answer["encryptionKey"] = made_up.clone();
        }
    });
    user.succeed(&["session", "rekey", &id]);
    server.tell_the_truth();
    user.succeed(&["session", "send", &id, "secret"]);
    let lines = user.json_lines(&["session", "read", &id]);
    let last = lines.last().unwrap();
    assert_eq!((&last["body"]["text"], &last["message"]["keyEpoch"]), (&json!("secret"), &json!(3)));
}

fn by_ref(server: &LyingServer, rows: &[Row]) {
    let (user, _, session) = victim(server);
    let name = shown(&user, &session.to_string())["ref"].as_str().unwrap().to_owned();
    let cast = Cast::from([("ref", json!(name)), ("other", create(&user, "Other"))]);
    for row in rows {
        let commands: [&[&str]; 3] = [
            &["session", "send", &name, "secret"],
            &["session", "read", &name],
            &["session", "delete", &name, "--yes"],
        ];
        row.tell(server, &cast, || refused(row, server, &user, &commands));
    }
    user.succeed(&["session", "send", &name, "fine"]);
}

fn guest(server: &LyingServer, rows: &[Row]) {
    let ((owner, _), (guest, guest_id)) = (sign_up(&server.direct), sign_up(&server.url));
    let id = create(&owner, "Plans")["id"].as_str().unwrap().to_owned();
    owner.succeed(&["share", "add", &id, &guest_id, "--level", "edit"]);
    guest.succeed(&["session", "send", &id, "hello"]);
    let account = guest.json(&["whoami"])["publicKey"].as_str().unwrap().to_owned();
    let grant = grant(&id, (&guest_id, &account), ShareLevel::Edit);
    let stranger = AccountKey::generate();
    let made_up = SharedRing::seal(&KeyRing::generate(), &content_key(&guest), (grant, None), &stranger, None).unwrap();
    let cast = Cast::from([("session", json!(id)), ("made_up", json!(made_up.to_text()))]);
    let all: [&[&str]; 2] = [&["session", "send", &id, "secret", "--force"], &["session", "read", &id]];
    for row in rows {
        row.tell(server, &cast, || match row.expect {
            Expect::Refused => refused(row, server, &guest, &all),
            Expect::NotWritten => refused(row, server, &guest, &all[..1]),
            _ => writes(row, (&guest, &id), 1),
        });
    }
    guest.succeed(&["session", "send", &id, "fine"]);
}

fn grant<'a>(session: &str, (user, account): (&str, &'a str), level: ShareLevel) -> Grant<'a> {
    let (session, recipient) = (session.parse().unwrap(), user.parse().unwrap());
    Grant { session, recipient, account, level, content_epoch: 1, recipient_epoch: 1 }
}

fn own_list(server: &LyingServer, rows: &[Row]) {
    let (user, me, _) = victim(server);
    user.succeed(&["machine", "register"]);
    let lists = get(server, &user, &format!("/v1/users/{me}/devices"));
    let cast = Cast::from([("me", json!(me)), ("first_list", json!([lists["lists"][0]]))]);
    for row in rows {
        row.tell(server, &cast, || refused(row, server, &user, &[&["session", "list"]]));
    }
    user.succeed(&["session", "list"]);
}

fn friends_list(server: &LyingServer, rows: &[Row]) {
    let (user, _, session) = victim(server);
    let ((friend, friend_id), (_other, other_id)) = (sign_up(&server.direct), sign_up(&server.direct));
    friend.succeed(&["machine", "register"]);
    let id = session.to_string();
    let page = get(server, &friend, &format!("/v1/users/{friend_id}/devices"));
    let mut changed = page["lists"].clone();
    let mut body: Value = serde_json::from_str(changed[1]["body"].as_str().unwrap()).unwrap();
    body["contentPublicKey"] = json!(AccountKey::generate().public_key());
    changed[1]["body"] = json!(body.to_string());
    let cast = Cast::from([
        ("friend", json!(friend_id)),
        ("others_lists", get(server, &user, &format!("/v1/users/{other_id}/devices"))["lists"].clone()),
        ("changed_lists", changed),
    ]);
    for (number, row) in rows.iter().enumerate() {
        // A computer that knows the newest list asks for what comes after it.
        if number > 0 {
            user.succeed(&["share", "add", &id, &friend_id]);
        }
        row.tell(server, &cast, || {
            refused(row, server, &user, &[&["share", "add", &id, &friend_id, "--level", "admin"]])
        });
    }
    assert!(friend.succeed(&["session", "list"]).contains("Plans"));
}

/// The server brings people back into the shares of a session.
fn new_key(server: &LyingServer, rows: &[Row]) {
    let (user, _, session) = victim(server);
    let id = session.to_string();
    let people = ["Friend", "Left", "Thief"].map(|_| sign_up(&server.direct));
    let [(friend, friend_id), (left, left_id), (thief, thief_id)] = &people;
    user.succeed(&["share", "add", &id, friend_id, "--level", "admin"]);
    user.succeed(&["share", "add", &id, left_id]);
    let shares = user.json(&["share", "list", &id])["shares"].clone();
    let removed = shares.as_array().unwrap().iter().find(|share| share["userId"] == **left_id).unwrap().clone();
    user.succeed(&["share", "remove", &id, left_id]);
    // A ring of the present epoch that the thief has made, granted by a key of the thief's own.
    let account = thief.json(&["whoami"])["publicKey"].as_str().unwrap().to_owned();
    let ring = KeyRing::generate().next().unwrap();
    let grant = (grant(&id, (thief_id, &account), ShareLevel::View), None);
    let made_up = SharedRing::seal(&ring, &content_key(thief), grant, &AccountKey::generate(), None).unwrap();
    let mut made = removed.clone();
    (made["userId"], made["encryptedKey"]) = (json!(thief_id), json!(made_up.to_text()));
    let cast = Cast::from([("session", json!(id)), ("removed_share", removed), ("made_up_share", made)]);
    for row in rows {
        row.tell(server, &cast, || {
            let ended = user.run(&["session", "rekey", &id]);
            assert_eq!(ended.code, 0, "{}", ended.err);
            let named = [left_id, thief_id].map(|one| ended.err.contains(&format!("{one} does not get the new key")));
            assert!(named.contains(&true) && !ended.err.contains(friend_id), "{}", ended.err);
            let given =
                |line: &String| line.starts_with("PATCH") && (line.contains(left_id) || line.contains(thief_id));
            assert!(!server.requests().iter().any(given), "{}", row.id);
        });
    }
    user.succeed(&["session", "send", &id, "for the friend"]);
    // An admin shares on, and the owner's next key goes to whom they have chosen.
    friend.succeed(&["share", "add", &id, left_id]);
    user.succeed(&["session", "rekey", &id]);
    user.succeed(&["session", "send", &id, "for both"]);
    for reader in [friend, left] {
        let lines = reader.json_lines(&["session", "read", &id]);
        assert_eq!(lines.last().unwrap()["body"]["text"], "for both");
    }
}

fn guests_epoch(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let (user, _, session) = victim(server);
        let ((friend, them), tablet) = (sign_up(&server.direct), User::new(None));
        add(&friend, &tablet, &[]);
        let id = session.to_string();
        user.succeed(&["share", "add", &id, &them]);
        let name = Thief::of(&tablet, &server.direct).key.public_key();
        friend.succeed(&["devices", "remove", &name, "--yes"]);
        row.tell(server, &Cast::new(), || writes(row, (&user, &id), 2));
    }
}

fn machine(server: &LyingServer, rows: &[Row]) {
    let (user, _, _) = victim(server);
    user.succeed(&["machine", "register", "--id", "desk"]);
    let machine: MachineId = "desk".parse().unwrap();
    let (ring, stranger) = (KeyRing::generate(), AccountKey::generate());
    let key = seal::seal_ring(&ring, &content_key(&user), Binding::Machine { machine: &machine }, &stranger).unwrap();
    let card = json!({"host": "scratch", "os": "", "arch": ""});
    let metadata = seal::seal_json(&ring, Purpose::MachineMetadata(&machine), &card).unwrap();
    let cast = Cast::from([("made_up", json!(key)), ("made_up_name", json!(metadata))]);
    for row in rows {
        row.tell(server, &cast, || {
            assert!(!user.succeed(&["machine", "show", "desk"]).contains("scratch"), "what it says of itself");
            let said = user.fail(&["do", "--machine", "scratch", "--provider", "claude", "x"]);
            assert!(
                said.contains("scratch") && !server.requests().iter().any(|line| line.starts_with("POST")),
                "{said}"
            );
        });
    }
    user.succeed(&["machine", "list"]);
}

/// What the devices of an account share says whose account key was seen first.
fn shared_state(server: &LyingServer, rows: &[Row]) {
    let (user, _, session) = victim(server);
    let (tablet, phone, fresh) = (User::new(None), User::new(None), User::new(None));
    let ((_friend, friend_id), (_other, other_id)) = (sign_up(&server.direct), sign_up(&server.direct));
    for device in [&tablet, &phone, &fresh] {
        add(&user, device, &[]);
    }
    let id = session.to_string();
    user.succeed(&["share", "add", &id, &other_id]);
    let (old, thief) = (get(server, &user, "/v1/account"), Thief::of(&phone, &server.direct));
    user.succeed(&["share", "add", &id, &friend_id]);
    user.succeed(&["devices", "remove", &thief.key.public_key(), "--yes"]);
    let theirs = create(&tablet, "Theirs")["id"].as_str().unwrap().to_owned();
    tablet.succeed(&["share", "add", &theirs, &other_id]);
    let now = get(server, &user, "/v1/account")["clientStateVersion"].as_i64().unwrap();
    let (account, old) = (list_of(&user)["account"].as_str().unwrap().to_owned(), old["clientState"].as_str().unwrap());
    let again = seal_client_state(br#"{"pinned":{}}"#, &content_key(&user), (&account, now + 1), &thief.key).unwrap();
    let cast = Cast::from([
        ("friend", json!(friend_id)),
        ("stranger", json!(AccountKey::generate().public_key())),
        ("old", json!(old)),
        ("moved", json!(moved(&again, old))),
        ("again", json!(again)),
        ("next", json!(now + 1)),
    ]);
    for row in rows {
        row.tell(server, &cast, || refused(row, server, &tablet, &[&["share", "add", &theirs, &friend_id]]));
    }
    tablet.succeed(&["share", "add", &theirs, &friend_id]);
    // On a device that has used nothing of it yet.
    let row = rows.iter().find(|row| row.id == "another-account-key").unwrap();
    row.tell(server, &cast, || refused(row, server, &fresh, &[&["share", "add", &id, &friend_id, "--level", "edit"]]));
    fresh.succeed(&["share", "add", &id, &friend_id, "--level", "edit"]);
}

/// What a server says of an error reaches no terminal as it is.
fn error(server: &LyingServer, rows: &[Row]) {
    let (user, _) = sign_up(&server.url);
    let missing = SessionId::generate().to_string();
    for row in rows {
        let cast = Cast::from([("missing", json!(missing))]);
        let said = row.tell(server, &cast, || user.fail(&["session", "show", &missing]));
        assert!(said.contains(&row.says) && !said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{said:?}");
    }
}

fn removal(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let ((user, _, session), thief, (_friend, friend_id)) =
            (victim(server), User::new(None), sign_up(&server.direct));
        add(&user, &thief, &["--role", "linked"]);
        let key = Thief::of(&thief, &server.direct).key.public_key();
        let ended = row.tell(server, &Cast::new(), || user.run(&["devices", "remove", &key, "--yes"]));
        assert!(ended.code == 0 && ended.err.contains(&row.says), "{}", ended.err);
        assert!(thief.fail(&["session", "list"]).contains("removed from its account"));
        user.succeed(&["share", "add", &session.to_string(), &friend_id]);
    }
}
