//! The lies of `tests/lies.json` to a machine: it does what its owner has signed, and nothing else.

use ensemble_client::{Client, Credential};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxPublicKey, KeyRing, Purpose};
use ensemble_protocol::transcript::body::{AccessGrant, Control};
use ensemble_protocol::transcript::body::{Content, KnownList, Message, Prompt};
use ensemble_protocol::transcript::words::{May, When};
use ensemble_protocol::transcript::{Envelope, account_digest, digest};
use ensemble_types::ids::{MachineId, SessionId};
use ensemble_types::messages::AppendMessage;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::acp::Editor;
use crate::ensemble::{Running, User};
use crate::lies::{get, list_of, newest_list, shown, sign_up};
use crate::lies_table::{Cast, Row, tell_all};
use crate::linking::add;
use crate::live::{assert_whole, host_of, kill, log, seen, turns, until};
use crate::lying::LyingServer;
use crate::moved_seals::remove_only;
use crate::removed::Thief;
use crate::scripted;

/// How a machine calls itself, and the command line.
const MACHINE: &str = "ensemble-runner/";
const COMMAND_LINE: &str = "ensemble/";

#[test]
fn a_machine_does_what_its_owner_has_signed() {
    tell_all(
        "host",
        &[
            ("a machine is given prompts", prompts),
            ("strangers write to a machine by the thousand", strangers),
            ("a device gives a right that no later one reaches", far_right),
            ("a removed device writes to a machine", removed),
        ],
    );
}

/// A hosted session of a person who also has a phone.
pub(crate) struct Hosted {
    pub(crate) user: User,
    _programs: TempDir,
    pub(crate) name: String,
    pub(crate) session: SessionId,
    machine: MachineId,
    owner: Thief,
    phone: Thief,
    ring: KeyRing,
    /// The newest list, and when the session was made.
    list: KnownList,
    begun: Timestamp,
    url: String,
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if let Some(host) = host_of(&self.user) {
            kill(host);
        }
    }
}

impl Hosted {
    pub(crate) fn new(server: &LyingServer) -> Self {
        let ((user, programs), phone) = (scripted::user(), User::new(None));
        user.succeed(&["--server", &server.url, "login"]);
        add(&user, &phone, &["--role", "linked"]);
        let name = user.succeed(&["claude", "begin", "--detach"]).trim().to_owned();
        turns(&user, &name, 1);
        let shown = shown(&user, &name);
        let text = |member: &str| shown[member].as_str().unwrap().to_owned();
        let (session, machine): (SessionId, MachineId) =
            (text("id").parse().unwrap(), text("machineId").parse().unwrap());
        let (owner, phone) = (Thief::of(&user, &server.direct), Thief::of(&phone, &server.direct));
        let binding = Binding::Hosted { session, owner: owner.user, machine: &machine };
        let ring =
            owner.contents.open_with(|pair| seal::open_ring(&text("encryptionKey"), pair, binding)).unwrap().ring;
        let (url, list) = (server.direct.clone(), newest_list(&user));
        let begun = serde_json::from_value(shown["createdAt"].clone()).unwrap();
        let version = serde_json::from_str::<Value>(&list).unwrap()["version"].as_u64().unwrap();
        let list = KnownList { version: u32::try_from(version).unwrap(), digest: digest(&list) };
        Self { user, _programs: programs, name, session, machine, owner, phone, ring, list, begun, url }
    }

    /// The session's newest key, after the account has another list.
    fn take_newest_key(&mut self) {
        self.owner = Thief::of(&self.user, &self.url);
        let key = shown(&self.user, &self.name)["encryptionKey"].as_str().unwrap().to_owned();
        let binding = Binding::Hosted { session: self.session, owner: self.owner.user, machine: &self.machine };
        self.ring = self.owner.contents.open_with(|pair| seal::open_ring(&key, pair, binding)).unwrap().ring;
    }

    /// A message as this device of the owner would write it.
    fn message(&self, id: &str, content: Content, signer: &AccountKey) -> AppendMessage {
        let list = self.list.clone();
        let body = Message { local_id: id.to_owned(), at: self.begun, list, n: None, content }.write().unwrap();
        let signed =
            Envelope::sign(self.session, self.owner.user, body, signer.signing_key()).unwrap().write().unwrap();
        let content = seal::seal(&self.ring, Purpose::Message(self.session), &signed).unwrap();
        AppendMessage {
            content: Blob::new(content).unwrap(),
            local_id: Text::new(id.to_owned()).unwrap(),
            key_epoch: Some(self.ring.epoch().into()),
        }
    }

    fn prompt(&self, text: &str, signer: &AccountKey) -> AppendMessage {
        let prompt = Prompt { text: text.to_owned(), attachments: Vec::new(), when: When::Next, directory: None };
        self.message(text, Content::Prompt(prompt), signer)
    }

    /// The server takes them for the owner's.
    fn append(&self, messages: &[AppendMessage]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let credential = Credential::Device(self.owner.key.clone());
        let client = Client::builder(&self.url).credential(credential).build().unwrap();
        for some in messages.chunks(200) {
            runtime.block_on(client.append_messages(self.session, some.to_vec())).unwrap();
        }
    }

    /// The owner prompts, and the agent does it.
    fn does(&self, text: &str) -> Vec<Value> {
        self.user.succeed(&["prompt", &self.name, text]);
        self.said(text)
    }

    /// What the machine has kept of the session has this text.
    fn machine_knows(&self, text: &str) -> bool {
        let session = self.session.to_string();
        let folder = self.user.files().join("hosts").join(self.machine.as_str()).join("sessions").join(session);
        let files = std::fs::read_dir(folder).unwrap();
        files
            .into_iter()
            .any(|file| std::fs::read_to_string(file.unwrap().path()).is_ok_and(|kept| kept.contains(text)))
    }

    fn said(&self, text: &str) -> Vec<Value> {
        let said = format!("said {text}");
        let has_ended = |log: &[Value]| {
            let at = log.iter().position(|body| body["text"] == *said)?;
            log[at..].iter().any(|body| body["type"] == "turn" && body["state"] == "ended").then_some(())
        };
        until(&said, || {
            let log = log(&self.user, &self.name);
            has_ended(&log).map(|()| log)
        })
    }
}

fn says(log: &[Value], text: &str) -> bool {
    log.iter().any(|body| body["text"].as_str().is_some_and(|said| said.contains(&format!("said {text}"))))
}

fn prompts(server: &LyingServer, rows: &[Row]) {
    let hosted = Hosted::new(server);
    let entry = list_of(&hosted.user)["devices"].as_array().unwrap().clone();
    let machine = entry.iter().find(|device| device["machineId"] == hosted.machine.as_str()).unwrap();
    let to = BoxPublicKey::from_text(machine["boxKey"].as_str().unwrap()).unwrap();
    let binding = Binding::Host { session: hosted.session, machine: &hosted.machine, content_epoch: 1 };
    let ring = hosted.ring.next().unwrap();
    let made_up = seal::seal_ring(&ring, &to, binding, &AccountKey::generate()).unwrap();
    let cast = Cast::from([("session", json!(hosted.session)), ("made_up", json!(made_up))]);
    for row in rows {
        row.tell_to(MACHINE, server, &cast, || {
            // The machine looks at the session again.
            hosted.user.succeed(&["session", "rename", &hosted.name, &row.id]);
            hosted.does(&row.id);
        });
        let lines = hosted.user.json_lines(&["session", "read", &hosted.name]);
        assert_eq!(lines.last().unwrap()["message"]["keyEpoch"], 1, "{}", row.id);
    }
    assert_whole(&log(&hosted.user, &hosted.name));
}

/// A session to which 1,200 strangers have written in its owner's name.
fn with_strangers(server: &LyingServer) -> Hosted {
    let hosted = Hosted::new(server);
    let prompt = |n| hosted.prompt(&format!("stranger {n}"), &AccountKey::generate());
    hosted.append(&(0..1_200).map(prompt).collect::<Vec<_>>());
    hosted
}

fn strangers(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let log = with_strangers(server).does(&row.id);
        assert!(!says(&log, "stranger "), "{}", row.id);
        let refused = log.iter().filter(|body| body["type"] == "receipt" && body["outcome"] == "rejected").count();
        assert!((1..=100).contains(&refused), "each receipt is a message: {refused}");
    }
}

pub(crate) fn strangers_are_read(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let hosted = with_strangers(server);
        hosted.user.succeed(&["prompt", &hosted.name, &row.id]);
        let lines = hosted.user.json_lines(&["log", &hosted.name]);
        let prompts = lines.iter().filter(|line| line["body"]["type"] == "prompt");
        let by_owner = prompts.filter(|line| line["author"]["user"].is_string()).count();
        assert_eq!(by_owner, 2, "{}", row.id);
    }
}

pub(crate) fn removed_is_read(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let mut hosted = Hosted::new(server);
        let (guest, guest_id) = sign_up(&server.url);
        let (me, session) = (hosted.owner.user.to_string(), hosted.session.to_string());
        hosted.user.succeed(&["share", "add", &hosted.name, &guest_id]);
        guest.succeed(&["log", &session]);
        let lists = get(server, &hosted.user, &format!("/v1/users/{me}/devices"))["lists"].clone();
        let known = lists.as_array().unwrap().last().unwrap();
        remove_only(&hosted.owner, &server.direct, &hosted.phone.key.public_key());
        hosted.does("without the phone");
        hosted.take_newest_key();
        // A holder of the key passes on what the phone has signed.
        hosted.append(&[hosted.prompt("by the phone", &hosted.phone.key)]);
        let by_phone = |reader: &User| {
            let lines = reader.json_lines(&["log", &session]);
            let line = lines.iter().find(|line| line["body"]["text"] == "by the phone");
            line.unwrap_or_else(|| panic!("{lines:#?}"))["author"].clone()
        };
        let cast = Cast::from([("owner", json!(me)), ("known", json!([known]))]);
        row.tell_to(COMMAND_LINE, server, &cast, || {
            let log = guest.succeed(&["log", &session]);
            let at = log.find("> by the phone").unwrap_or_else(|| panic!("{log}"));
            let author = log[..at].trim_end().lines().next_back().unwrap();
            assert!(author.contains(&row.says), "{log}");
            assert!(by_phone(&guest)["unconfirmed"].is_u64(), "{}", by_phone(&guest));
            let mut editor = Editor::start(&guest, &[], false);
            editor.done("session/load", &json!({"sessionId": session, "cwd": guest.home(), "mcpServers": []}));
            editor.sees("user_message_chunk", &row.says);
        });
        let author = by_phone(&guest);
        assert!(author["removedIn"].is_u64() && author["unconfirmed"].is_null(), "{author}");
        let log = guest.succeed(&["log", &session]);
        assert!(log.contains("(a device that was removed): by the phone"), "{log}");
    }
}

fn far_right(server: &LyingServer, rows: &[Row]) {
    let hosted = Hosted::new(server);
    let (guest, guest_id) = sign_up(&server.direct);
    let account = guest.json(&["whoami"])["publicKey"].as_str().unwrap().to_owned();
    let user = &hosted.user;
    for row in rows {
        let grant = AccessGrant {
            user: guest_id.parse().unwrap(),
            account: account_digest(&account).unwrap(),
            may: May::Approve,
            version: (1 << 53) - 1,
            removed: false,
            key_epoch: None,
            key: None,
        };
        hosted.append(&[hosted.message(&row.id, Content::Control(Control::Access(grant)), &hosted.phone.key)]);
        seen(user, &hosted.name, "its receipt", |log| {
            let receipt = log.iter().find(|body| body["commandId"] == *row.id)?;
            assert_eq!((&receipt["outcome"], &receipt["code"]), (&json!("rejected"), &json!("stale")));
            Some(())
        });
        // What the owner does counts.
        let given = user.run(&["share", "add", &hosted.name, &guest_id, "--level", "edit"]);
        assert!(given.code == 0 && given.err.contains("The machine takes prompts"), "{}", given.err);
        guest.succeed(&["prompt", &hosted.name, "by a guest"]);
        hosted.said("by a guest");
        user.succeed(&["share", "remove", &hosted.name, &guest_id]);
    }
}

fn removed(server: &LyingServer, rows: &[Row]) {
    for row in rows {
        let hosted = Hosted::new(server);
        let (user, me) = (&hosted.user, hosted.owner.user.to_string());
        let lacks_key = || user.succeed(&["sessions"]).contains("a new key");
        let lists = get(server, user, &format!("/v1/users/{me}/devices"))["lists"].clone();
        let newest = lists.as_array().unwrap().last().unwrap();
        // The phone's prompt comes in the place of another message.
        let swapped = |text: &str, ring: &KeyRing| {
            let (message, id) = (hosted.prompt(text, &hosted.phone.key), format!("instead of {text}"));
            let carrier = AppendMessage {
                content: Blob::new(seal::seal(ring, Purpose::Message(hosted.session), b"").unwrap()).unwrap(),
                local_id: Text::new(id.clone()).unwrap(),
                key_epoch: Some(ring.epoch().into()),
            };
            let cast = Cast::from([
                ("me", json!(me)),
                ("session", json!(hosted.session)),
                ("lists", json!([newest])),
                ("carrier", json!(id)),
                ("theirs", json!(message.content)),
                ("their_id", json!(message.local_id)),
            ]);
            (cast, carrier)
        };
        let (cast, carrier) = swapped("by the phone", &hosted.ring);
        row.tell_to(MACHINE, server, &cast, || {
            hosted.append(&[carrier]);
            hosted.said("by the phone");
        });
        let (cast, carrier) = swapped("evil", &hosted.ring.next().unwrap());
        row.tell_to(MACHINE, server, &cast, || {
            remove_only(&hosted.owner, &server.direct, &hosted.phone.key.public_key());
            // It gives the session a new key, and waits for the machine.
            let _prompt = Running::start(user, &["prompt", &hosted.name, "waits"]);
            seen(user, &hosted.name, "waits", |log| log.iter().find(|body| body["text"] == "waits").map(drop));
            hosted.append(&[carrier]);
            until("what the machine decides", || hosted.machine_knows("evil").then_some(()));
            until("what the machine lacks", || lacks_key().then_some(()));
        });
        // The machine gets the key now.
        hosted.said("waits");
        until("the machine's word that it has it", || (!lacks_key()).then_some(()));
        let log = hosted.does("the end");
        let receipt = log.iter().find(|body| body["commandId"] == "evil").unwrap();
        assert!(receipt["outcome"] == "rejected" && !says(&log, "evil"), "{log:#?}");
    }
}
