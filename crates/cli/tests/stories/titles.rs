//! What people choose sessions by is what was signed: neither a server nor a guest with the key gives a session another title or directory.

use ensemble_client::{Client, Credential, Window, idempotency_key};
use ensemble_protocol::seal::{
    self, Binding, KeyRing, Metadata, OfMachine, Purpose, SharedRing, open_metadata, seal_agent_state, seal_metadata,
};
use ensemble_protocol::{AccountKey, transcript::Envelope};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::sessions::{CreateSession, UpdateSession};
use ensemble_types::text::Blob;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::lies::{content_key, victim};
use crate::lying::LyingServer;
use crate::removed::Thief;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The machine of a user.
struct Machine {
    id: MachineId,
    key: AccountKey,
    owner: UserId,
    url: String,
}

impl Machine {
    fn of(user: &User, owner: UserId, url: &str) -> Self {
        user.succeed(&["machine", "register", "--id", "desk"]);
        let folder = std::fs::read_dir(user.files().join("machines")).unwrap().next().unwrap().unwrap().path();
        let key = std::fs::read_to_string(folder.join("desk.key")).unwrap();
        let (id, url) = ("desk".parse().unwrap(), url.to_owned());
        Self { id, key: AccountKey::from_text(&key).unwrap(), owner, url }
    }

    fn client(&self) -> Client {
        Client::builder(&self.url).credential(Credential::Device(self.key.clone())).build().unwrap()
    }

    /// Makes a session of claude in this directory, as the machine's own program does.
    fn session(&self, user: &User, directory: &str) -> (SessionId, KeyRing) {
        let (id, ring) = (SessionId::generate(), KeyRing::generate());
        let binding = Binding::Hosted { session: id, owner: self.owner, machine: &self.id };
        let key = seal::seal_ring(&ring, &content_key(user), binding, &self.key).unwrap();
        let metadata = said(&ring, (id, 1), self.owner, &json!({"path": directory, "agent": "claude"}), &self.key);
        let create = CreateSession {
            id: Some(id),
            machine_id: Some(self.id.clone()),
            metadata: Blob::new(metadata).unwrap(),
            encryption_key: Blob::new(key).unwrap(),
            content_epoch: None,
            tag: None,
        };
        run(async { self.client().create_session(&create, &idempotency_key()).await.unwrap() });
        (id, ring)
    }

    /// The commands in a session, as people have signed them.
    fn commands(&self, session: SessionId, ring: &KeyRing) -> Vec<Value> {
        let mut page = run(async { self.client().message_page(session, Window::default()).await.unwrap() });
        page.messages.sort_by_key(|message| message.seq);
        let opened = page.messages.iter().map(|message| {
            let opened = seal::open(ring, Purpose::Message(session), &message.content).unwrap();
            serde_json::from_str(&Envelope::open(session, &opened).unwrap().body).unwrap()
        });
        opened.collect()
    }
}

fn said(ring: &KeyRing, of: (SessionId, i64), user: UserId, body: &Value, signer: &AccountKey) -> String {
    with(ring, of, (user, None), body, signer)
}

fn with(
    ring: &KeyRing,
    of: (SessionId, i64),
    (user, of_machine): (UserId, Option<OfMachine>),
    body: &Value,
    signer: &AccountKey,
) -> String {
    let metadata = Metadata { body: body.to_string(), user, admin: None, of_machine };
    seal_metadata(ring, of, metadata, signer).unwrap()
}

/// In every answer with this session these members are others.
fn changes(server: &LyingServer, session: SessionId, members: Value) {
    let id = session.to_string();
    server.lie(move |_, answer| {
        let change = |session: &mut Value| {
            if session["id"] == *id {
                for (member, value) in members.as_object().unwrap() {
                    session[member] = value.clone();
                }
            }
        };
        change(answer);
        answer.get_mut("sessions").and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
    });
}

fn sends_commands(server: &LyingServer) -> bool {
    server.requests().iter().any(|line| line.starts_with("POST") && line.contains("/messages"))
}

#[test]
fn a_session_is_not_resumed_in_another_directory() {
    let server = LyingServer::start();
    let (user, owner, _) = victim(&server);
    let machine = Machine::of(&user, owner, &server.direct);
    let [prod, scratch] = ["prod", "scratch"].map(|name| {
        std::fs::create_dir(user.home().join(name)).unwrap();
        user.home().join(name).canonicalize().unwrap().display().to_string()
    });
    let (session, ring) = machine.session(&user, &prod);
    let id = session.to_string();
    user.succeed(&["session", "end", &id]);

    let theirs = json!({"title": "Scratch", "path": scratch, "agent": "claude"});
    let stranger = AccountKey::generate();
    let first = user.json(&["session", "show", &id])["session"]["metadata"].as_str().unwrap().to_owned();
    let part = open_metadata(&ring, (session, 1), &first).unwrap().of_machine(&machine.key.public_key());
    let (another, other_ring) = machine.session(&user, &scratch);
    let elsewhere = user.json(&["session", "show", &another.to_string()])["session"]["metadata"].clone();
    user.succeed(&["session", "delete", &another.to_string(), "--yes"]);
    let of_another = open_metadata(&other_ring, (another, 1), elsewhere.as_str().unwrap()).unwrap();
    let of_another = of_another.of_machine(&machine.key.public_key());
    for (what, metadata) in [
        ("by a stranger", said(&ring, (session, 1), owner, &theirs, &stranger)),
        ("next to what the machine has signed", with(&ring, (session, 1), (owner, part), &theirs, &stranger)),
        ("with what it has signed of another", with(&ring, (session, 1), (owner, of_another), &theirs, &stranger)),
        ("not signed", seal::seal_json(&ring, Purpose::SessionMetadata(session), &theirs).unwrap()),
        ("of another session", elsewhere.as_str().unwrap().to_owned()),
    ] {
        changes(&server, session, json!({ "metadata": metadata }));
        let said = user.fail(&["claude", "--continue", "--dir", "scratch", "--detach", "go"]);
        assert!(said.contains("There is no session of claude in"), "{what}: {said}");
        assert!(!sends_commands(&server), "{what}: {:?}", server.requests());
        assert!(!user.complete(&["attach", ""]).contains("Scratch"), "{what}");
        assert!(!user.succeed(&["sessions", "--all"]).contains("Scratch"), "{what}");
    }
    server.tell_the_truth();

    // A title of the owner does not take the directory away, and neither does a new key.
    user.succeed(&["session", "rename", &id, "Production"]);
    user.succeed(&["session", "rekey", &id]);
    let shown = user.json(&["session", "show", &id]);
    assert_eq!((&shown["metadata"]["title"], &shown["metadata"]["path"]), (&json!("Production"), &json!(prod)));
    assert!(user.fail(&["claude", "--continue", "--dir", "scratch", "--detach", "go"]).contains("There is no session"));
    user.succeed(&["claude", "--continue", "--dir", "prod", "--detach", "go"]);
    let key = user.json(&["session", "show", &id])["session"]["encryptionKey"].as_str().unwrap().to_owned();
    let binding = Binding::Hosted { session, owner, machine: &machine.id };
    let contents = Thief::of(&user, &server.direct).contents;
    let ring = contents.open_with(|pair| seal::open_ring(&key, pair, binding)).unwrap().ring;
    let commands = machine.commands(session, &ring);
    let named = |command: &Value| (command["action"].clone(), command["value"]["directory"].clone());
    assert_eq!(named(&commands[0]), (json!("resume"), json!(prod)), "{commands:#?}");
    assert_eq!((&commands[1]["text"], &commands[1]["directory"]), (&json!("go"), &json!(prod)), "{commands:#?}");
}

#[test]
fn an_old_title_is_not_shown_again() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let id = session.to_string();
    let old = user.json(&["session", "show", &id])["session"]["metadata"].clone();
    user.succeed(&["session", "rename", &id, "Next"]);
    let title = || user.json(&["session", "show", &id])["metadata"]["title"].clone();
    for version in [1, 2, 3] {
        changes(&server, session, json!({ "metadata": old, "metadataVersion": version }));
        assert_eq!(title(), Value::Null, "{version}");
        assert!(!user.succeed(&["session", "list"]).contains("Plans"), "{version}");
    }
    server.tell_the_truth();
    assert_eq!(title(), "Next");
    // A new key is made with its title, and what was signed for the key before counts no more.
    let before = user.json(&["session", "show", &id])["session"]["metadata"].clone();
    user.succeed(&["session", "rekey", &id]);
    assert_eq!(title(), "Next");
    let version = user.json(&["session", "show", &id])["session"]["metadataVersion"].as_i64().unwrap();
    assert_eq!(version, 3);
    for shown in [2, 3, 4] {
        changes(&server, session, json!({ "metadata": before, "metadataVersion": shown }));
        assert_eq!(title(), Value::Null, "{shown}");
    }
    server.tell_the_truth();
    // A server that was restored is behind. The next title is above what was seen.
    let note = user.files().join("seen-titles.json");
    let is_behind = |from: i64, to: i64| {
        let text = std::fs::read_to_string(&note).unwrap();
        let changed = text.replace(&format!(r#""version": {from}"#), &format!(r#""version": {to}"#));
        assert_ne!(text, changed);
        std::fs::write(&note, changed).unwrap();
        assert_eq!(title(), Value::Null);
    };
    is_behind(3, 6);
    user.succeed(&["session", "rename", &id, "After"]);
    assert_eq!(title(), "After");
    assert_eq!(user.json(&["session", "show", &id])["session"]["metadataVersion"], 7);
    // A new key gets the title that was seen last, although the server has lost it.
    is_behind(7, 9);
    user.succeed(&["session", "rekey", &id]);
    assert_eq!(title(), "After");
    assert_eq!(user.json(&["session", "show", &id])["session"]["metadataVersion"], 8);
}

/// What a device of an account can open, from its own disk: the newest ring of its session.
fn ring_of(thief: &Thief, session: SessionId, shown: &Value) -> KeyRing {
    let sealed = shown["session"]["encryptionKey"].as_str().unwrap();
    let binding = Binding::Session { session, owner: thief.user };
    thief.contents.open_with(|pair| seal::open_ring(sealed, pair, binding)).unwrap().ring
}

#[test]
fn a_title_prevents_no_new_key_and_no_other_title() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let (id, them) = (session.to_string(), friend.json(&["login"])["id"].as_str().unwrap().to_owned());
    user.succeed(&["share", "add", &id, &them, "--level", "admin"]);
    let shared = friend.json(&["session", "show", &id]);
    let thief = Thief::of(&friend, &server.direct);
    let share = SharedRing::from_text(shared["session"]["encryptedKey"].as_str().unwrap()).unwrap();
    let ring = thief.contents.open_with(|pair| share.open(pair, (session, thief.user), None)).unwrap().ring;
    let admin = share.as_admin(thief.user, &thief.key.public_key()).unwrap();
    // Each number is written in four characters, and in more when it is signed again.
    let body = format!(r#"{{"title":"Theirs","n":[{}1]}}"#, "1e15,".repeat(3_200));
    let metadata = Metadata { body, user: thief.user, admin: Some(&admin), of_machine: None };
    let metadata = seal_metadata(&ring, (session, 2), metadata, &thief.key).unwrap();
    run(async {
        let client = Client::builder(&server.direct).credential(Credential::Device(thief.key.clone())).build().unwrap();
        let metadata = Some(Blob::new(metadata).unwrap());
        let update = UpdateSession { metadata, expected_metadata_version: Some(1), ..UpdateSession::default() };
        client.update_session(session, &update).await.unwrap();
    });
    let title = || user.json(&["session", "show", &id])["metadata"]["title"].clone();
    assert_eq!(title(), "Theirs", "an admin gives it");
    user.succeed(&["session", "rekey", &id]);
    assert_eq!(title(), "Theirs");
    user.succeed(&["session", "rename", &id, "Mine"]);
    assert_eq!(title(), "Mine");
    assert!(user.fail(&["session", "rename", &id, &"x".repeat(17_000)]).contains("too long"));
    assert_eq!(title(), "Mine");
}

#[test]
fn a_device_that_was_removed_gives_no_title_and_takes_none_away() {
    let server = LyingServer::start();
    let (user, owner, session) = victim(&server);
    let phone = User::new(None);
    crate::linking::add(&user, &phone, &["--role", "linked"]);
    let id = session.to_string();
    phone.succeed(&["session", "rename", &id, "From the phone"]);
    let before = phone.json(&["session", "show", &id]);
    let thief = Thief::of(&phone, &server.direct);
    let ring = ring_of(&thief, session, &before);
    user.succeed(&["devices", "remove", &thief.key.public_key(), "--yes"]);
    let title = || user.json(&["session", "show", &id])["metadata"]["title"].clone();
    assert_eq!(title(), "From the phone", "it was given while the device was listed");
    // The server shows the session as it was before it had a new key, and what the device signs now.
    let theirs = said(&ring, (session, 3), owner, &json!({"title": "Theirs"}), &thief.key);
    let key = before["session"]["encryptionKey"].clone();
    let shows = |metadata: &str, version: i64| {
        let members = json!({ "encryptionKey": key, "keyEpoch": 1, "metadata": metadata, "metadataVersion": version });
        changes(&server, session, members);
        title()
    };
    assert_eq!(shows(&theirs, 3), Value::Null);
    // Also on a computer that has not seen the session before.
    std::fs::remove_file(user.files().join("seen-titles.json")).unwrap();
    assert_eq!(shows(&theirs, 3), Value::Null);
    assert_eq!(shows(before["session"]["metadata"].as_str().unwrap(), 2), Value::Null);
    server.tell_the_truth();
    assert_eq!(title(), "From the phone");
}

#[test]
fn a_title_is_not_lost_while_it_cannot_be_found_out_whether_it_counts() {
    let server = LyingServer::start();
    let (user, _, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let (id, them) = (session.to_string(), friend.json(&["login"])["id"].as_str().unwrap().to_owned());
    user.succeed(&["share", "add", &id, &them, "--level", "admin"]);
    friend.succeed(&["session", "rename", &id, "By an admin"]);
    let path = format!("/v1/users/{them}");
    server.refuse(move |line| line.contains(&path));
    user.fail(&["session", "rename", &id, "Mine"]);
    user.fail(&["session", "rekey", &id]);
    assert!(!user.succeed(&["session", "list"]).contains("By an admin"), "no title now");
    server.tell_the_truth();
    assert!(user.succeed(&["session", "list"]).contains("By an admin"));
    // What was judged before is not asked for again.
    let path = format!("/v1/users/{them}");
    server.refuse(move |line| line.contains(&path));
    assert!(user.succeed(&["session", "list"]).contains("By an admin"));
    // A server that shows another account in their place says that it does not count, and prevents nothing.
    std::fs::remove_file(user.files().join("seen-titles.json")).unwrap();
    let (path, stranger) = (format!("GET /v1/users/{them}"), AccountKey::generate().public_key());
    server.tell_the_truth();
    server.lie(move |line, answer| {
        if line == path {
            answer["publicKey"] = json!(stranger);
        }
    });
    assert!(!user.succeed(&["session", "list"]).contains("By an admin"));
    user.succeed(&["session", "rename", &id, "Mine"]);
    server.tell_the_truth();
    assert!(user.succeed(&["session", "list"]).contains("Mine"));
}

#[test]
fn a_version_that_is_far_ahead_ends_no_titles() {
    let server = LyingServer::start();
    let (user, owner, session) = victim(&server);
    let id = session.to_string();
    let thief = Thief::of(&user, &server.direct);
    let ring = ring_of(&thief, session, &user.json(&["session", "show", &id]));
    for version in [1 << 60, i64::MAX] {
        let metadata = said(&ring, (session, version), owner, &json!({"title": "Far"}), &thief.key);
        changes(&server, session, json!({ "metadata": metadata, "metadataVersion": version }));
        user.succeed(&["session", "list"]);
        user.fail(&["session", "rename", &id, "Farther"]);
        server.tell_the_truth();
        assert_eq!(user.json(&["session", "show", &id])["metadata"]["title"], "Plans", "{version}");
    }
    user.succeed(&["session", "rename", &id, "Next"]);
    assert_eq!(user.json(&["session", "show", &id])["metadata"]["title"], "Next");
}

#[test]
fn the_directory_is_shown_to_who_has_not_seen_the_machine_before() {
    let server = LyingServer::start();
    let (user, owner, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let them = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session.to_string(), &them, "--level", "view"]);
    friend.succeed(&["session", "show", &session.to_string()]);
    let machine = Machine::of(&user, owner, &server.direct);
    let (hosted, _) = machine.session(&user, "/srv");
    let id = hosted.to_string();
    user.succeed(&["session", "rename", &id, "Titled"]);
    user.succeed(&["share", "add", &id, &them, "--level", "view"]);
    let shown = friend.json(&["session", "show", &id]);
    assert_eq!((&shown["metadata"]["title"], &shown["metadata"]["path"]), (&json!("Titled"), &json!("/srv")));
}

#[test]
fn a_guest_who_is_no_admin_gives_no_title() {
    let server = LyingServer::start();
    let (user, owner, session) = victim(&server);
    let friend = User::new(Some(&server.direct));
    let (id, them) = (session.to_string(), friend.json(&["login"])["id"].as_str().unwrap().to_owned());
    user.succeed(&["share", "add", &id, &them, "--level", "edit"]);
    let shared = friend.json(&["session", "show", &id]);
    assert_eq!(shared["metadata"]["title"], "Plans", "a guest sees the owner's");
    let thief = Thief::of(&friend, &server.direct);
    let share = SharedRing::from_text(shared["session"]["encryptedKey"].as_str().unwrap()).unwrap();
    let ring = thief.contents.open_with(|pair| share.open(pair, (session, thief.user), None)).unwrap().ring;
    let title = json!({"title": "Theirs"});
    let admin = share.as_admin(thief.user, &thief.key.public_key()).unwrap();
    let as_admin = |version| {
        let metadata = Metadata { body: title.to_string(), user: thief.user, admin: Some(&admin), of_machine: None };
        seal_metadata(&ring, (session, version), metadata, &thief.key).unwrap()
    };
    for (what, metadata) in [
        ("a guest", said(&ring, (session, 2), thief.user, &title, &thief.key)),
        ("in the owner's name", said(&ring, (session, 2), owner, &title, &thief.key)),
        ("who says that they are an admin", as_admin(2)),
    ] {
        changes(&server, session, json!({ "metadata": metadata, "metadataVersion": 2 }));
        assert_eq!(user.json(&["session", "show", &id])["metadata"], Value::Null, "{what}");
        let listed = user.succeed(&["session", "list"]);
        assert!(listed.contains(user.json(&["session", "show", &id])["session"]["ref"].as_str().unwrap()), "{listed}");
        assert!(!listed.contains("Theirs"), "{what}: {listed}");
    }
    server.tell_the_truth();
    assert_eq!(user.json(&["session", "show", &id])["metadata"]["title"], "Plans");
}

#[test]
fn what_a_machine_says_of_a_session_it_has_signed() {
    let server = LyingServer::start();
    let (user, owner, _) = victim(&server);
    let machine = Machine::of(&user, owner, &server.direct);
    let (session, ring) = machine.session(&user, "/srv");
    let state = json!({"stillRunning": [], "problem": "its disk is full"}).to_string();
    let sealed = |version, key: &AccountKey| seal_agent_state(&ring, (session, version), state.clone(), key).unwrap();
    let shows = |state: String, version: i64| {
        let members = json!({ "agentState": state, "agentStateVersion": version, "online": true });
        changes(&server, session, members);
        user.succeed(&["sessions"]).contains("its disk is full")
    };
    assert!(shows(sealed(4, &machine.key), 4));
    assert!(!shows(sealed(4, &machine.key), 5), "of another version");
    assert!(!shows(sealed(4, &AccountKey::generate()), 4), "by a stranger");
    let bare = seal::seal(&ring, Purpose::AgentState(session), state.as_bytes()).unwrap();
    assert!(!shows(bare, 4), "not signed");
}
