//! What a removed device can open with its whole disk, its tokens, what it has fetched before, and a copy of every database of the
//! server: nothing that was written in a session after the session got a new key.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ensemble_client::{Client, Credential, Known};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxKeyPair, ContentRing, KeyRing, Purpose, SharedRing};
use ensemble_types::ids::{MachineId, SessionId, UserId};

use crate::ensemble::{User, up};
use crate::linking::add;

/// Prints every text and blob in every table of the SQLite files below a directory, a line each; blobs as base64url, which is the
/// form of sealed values in the interface.
const DUMP: &str = r#"
import base64, glob, sqlite3, sys
for file in glob.glob(sys.argv[1] + "/**/*.db", recursive=True) + glob.glob(sys.argv[1] + "/**/*.sqlite", recursive=True):
    copy = sqlite3.connect(":memory:")
    sqlite3.connect(f"file:{file}?mode=ro", uri=True).backup(copy)
    for (table,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for row in copy.execute(f'SELECT * FROM "{table}"'):
            for value in row:
                if isinstance(value, bytes): print(base64.urlsafe_b64encode(value).rstrip(b"=").decode())
                elif isinstance(value, str) and "\n" not in value: print(value)
"#;

/// Everything that the device knows.
pub(crate) struct Thief {
    pub(crate) key: AccountKey,
    pub(crate) contents: ContentRing,
    pub(crate) user: UserId,
    /// The keys of sessions that it has opened so far.
    rings: Vec<KeyRing>,
}

impl Thief {
    /// All that it can fetch before it is removed.
    pub(crate) fn of(user: &User, url: &str) -> Self {
        let key = AccountKey::from_text(&std::fs::read_to_string(user.files().join("account.key")).unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::builder(url).credential(Credential::Device(key.clone())).build().unwrap();
            let token = client.sign_in().await.unwrap();
            let account = client.account().await.unwrap().public_key;
            let list = client.newest_list(token.user_id, Known::Account(&account)).await.unwrap().unwrap();
            let sealed = client.content_ring().await.unwrap().sealed;
            let pair = BoxKeyPair::of_device(&key).unwrap();
            let contents = ContentRing::open(&sealed, &pair, &key.public_key(), &list).unwrap();
            Self { key, contents, user: token.user_id, rings: Vec::new() }
        })
    }

    /// The messages of a session that it can open with the values of the databases.
    fn opens(&mut self, data: &Path, session: SessionId) -> BTreeSet<String> {
        self.opens_as(data, session, Binding::Session { session, owner: self.user })
    }

    /// The same of a session that the machine hosts.
    pub(crate) fn opens_hosted(&mut self, data: &Path, session: SessionId, machine: &MachineId) -> BTreeSet<String> {
        self.opens_as(data, session, Binding::Hosted { session, owner: self.user, machine })
    }

    fn opens_as(&mut self, data: &Path, session: SessionId, binding: Binding<'_>) -> BTreeSet<String> {
        let values = Command::new("python3").args(["-c", DUMP]).arg(data).output().unwrap();
        assert!(values.status.success(), "{}", String::from_utf8_lossy(&values.stderr));
        let values: Vec<String> = String::from_utf8(values.stdout).unwrap().lines().map(str::to_owned).collect();
        let own_box = BoxKeyPair::of_device(&self.key).unwrap();
        let pairs: Vec<BoxKeyPair> =
            (1..=self.contents.epoch()).map(|epoch| self.contents.pair(epoch).unwrap()).chain([own_box]).collect();
        let rings = &mut self.rings;
        for (value, pair) in values.iter().flat_map(|value| pairs.iter().map(move |pair| (value, pair))) {
            let own = seal::open_ring(value, pair, binding);
            rings.extend(own.map(|opened| opened.ring));
            let shared = SharedRing::from_text(value).and_then(|shared| shared.open(pair, (session, self.user), None));
            rings.extend(shared.map(|opened| opened.ring));
        }
        let rings = &*rings;
        let opened = values.iter().flat_map(|value| rings.iter().map(move |ring| (value, ring)));
        let opened = opened.filter_map(|(value, ring)| seal::open(ring, Purpose::Message(session), value).ok());
        opened.map(|text| String::from_utf8(text).unwrap()).collect()
    }
}

pub(crate) fn knows(texts: &BTreeSet<String>, word: &str) -> bool {
    texts.iter().any(|text| text.contains(word))
}

/// Removes the second device of an account, or the first one.
fn removed(role: &str, is_first: bool) {
    let operator = User::new(None);
    let (_up, url) = up(&operator, &["--no-runner"]);
    let data = operator.files().join("data");
    let (first, second) = (User::new(Some(&url)), User::new(None));
    first.succeed(&["login"]);
    add(&first, &second, &["--role", role]);
    let (owner, lost) = if is_first { (second, first) } else { (first, second) };
    let friend = User::new(Some(&url));
    friend.succeed(&["login"]);
    let me = owner.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    let create = |user: &User| -> String {
        user.json(&["session", "create", "--title", "Plans"])["session"]["id"].as_str().unwrap().to_owned()
    };
    let (own, foreign) = (create(&owner), create(&friend));
    friend.succeed(&["share", "add", &foreign, &me, "--level", "edit"]);
    for session in [&own, &foreign] {
        owner.succeed(&["session", "send", session, "word-before"]);
    }
    let mut thief = Thief::of(&lost, &url);
    let ids: Vec<SessionId> = [&own, &foreign].map(|id| id.parse().unwrap()).into();
    for id in &ids {
        assert!(knows(&thief.opens(&data, *id), "word-before"), "it could read it before: {id}");
    }
    let name = thief.key.public_key();
    owner.succeed(&["devices", "remove", &name, "--yes"]);
    // Nothing is written to another user's session with a key that the removed device has.
    let said = owner.fail(&["session", "send", &foreign, "word-after"]);
    assert!(said.contains("A device was removed since"), "{said}");
    // The friend's own program sees that a device of a guest is gone, before it writes.
    friend.succeed(&["session", "send", &foreign, "word-of-friend"]);
    for session in [&own, &foreign] {
        owner.succeed(&["session", "send", session, "word-after"]);
    }
    for id in &ids {
        // With the keys from before, and the databases as they are now.
        let opened = thief.opens(&data, *id);
        assert!(knows(&opened, "word-before"), "what it had it keeps");
        assert!(!knows(&opened, "word-after") && !knows(&opened, "word-of-friend"), "{id}: {opened:?}");
    }
    assert!(lost.fail(&["session", "list"]).contains("removed from its account"));
}

#[test]
fn a_removed_primary_device_opens_nothing_new() {
    removed("primary", false);
}

#[test]
fn a_removed_linked_device_opens_nothing_new() {
    removed("linked", false);
}

#[test]
fn the_removed_first_device_opens_nothing_new() {
    removed("primary", true);
}
