//! Two users and one session: create, write, share, remove the share, publish. The server sees only ciphertext.

use std::path::PathBuf;

use serde_json::Value;

use crate::ensemble::{Running, User, up};
use crate::live::turns;
use crate::place::Place;

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn texts(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| text(line, "/body/text")).collect()
}

/// What this person's computer remembers of a session.
pub(crate) fn record_of(user: &User, id: &str) -> PathBuf {
    let mut servers = std::fs::read_dir(user.files().join("sessions")).unwrap();
    servers.next().unwrap().unwrap().path().join(format!("{id}.json"))
}

#[test]
fn a_session_is_shared_and_the_share_removed() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &[]);
    let friend = User::new(Some(&url));
    let me = text(&owner.json(&["whoami"]), "/id").to_owned();
    let them = text(&friend.json(&["login", "--name", "A friend"]), "/id").to_owned();
    assert_ne!(me, them);

    let session = text(&owner.json(&["session", "create", "--title", "Secret plans"]), "/session/id").to_owned();
    let reference = text(&owner.json(&["session", "show", "last"]), "/session/ref").to_owned();
    let without = owner.fail(&["prompt", "last", "hello"]);
    assert!(without.contains("in which an agent works") && without.contains("`ensemble claude`"), "{without}");
    let (id, session) = (session.as_str(), reference.as_str());
    assert!(owner.succeed(&["session", "list"]).contains(session));
    assert!(owner.complete(&["session", "read", ""]).contains(&format!("{session}\tSecret plans")));
    owner.succeed(&["session", "send", id, "Hello", "there"]);
    let sent = owner.run_with_input(&["session", "send", session, "-"], "two\nlines 🙂");
    assert_eq!(sent.code, 0, "{}", sent.err);
    owner.succeed(&["session", "send", session, "once", "--local-id", "1"]);
    assert!(owner.succeed(&["session", "send", session, "twice", "--local-id", "1"]).contains("Already sent"));

    // What the server stores.
    let stored = owner.json(&["session", "show", session]);
    assert_eq!(text(&stored, "/metadata/title"), "Secret plans");
    assert!(!text(&stored, "/session/metadata").contains("Secret"));
    assert!(owner.succeed(&["session", "list"]).contains("Secret plans"));

    // Another user has no access.
    assert!(friend.fail(&["session", "read", session]).contains("Nothing with this id or ref is yours"));

    owner.succeed(&["share", "add", session, &them, "--level", "edit"]);
    assert!(owner.succeed(&["share", "list", session]).contains("A friend"));
    let read = friend.json_lines(&["session", "read", session]);
    assert_eq!(texts(&read), ["Hello there", "two\nlines 🙂", "once"]);
    for arguments in [["session", "list"].as_slice(), &["session", "list", "--shared"]] {
        assert!(friend.succeed(arguments).contains("Secret plans"));
    }
    assert!(friend.succeed(&["session", "list", "--own"]).contains("No sessions"));
    assert!(owner.succeed(&["session", "list", "--shared"]).contains("No sessions are shared with you"));
    assert!(friend.run(&["session", "send", session, " "]).err.contains("empty"));
    friend.succeed(&["session", "send", session, "Hi!"]);
    assert_eq!(texts(&owner.json_lines(&["session", "read", session, "-n", "1"])), ["Hi!"]);
    let read = owner.succeed(&["session", "read", "last"]);
    assert!(read.contains("  A friend (") && read.contains("  you\n"), "{read}");
    // What the friend may not do.
    assert_eq!(friend.run(&["session", "rename", session, "Mine"]).code, 1);
    assert_eq!(friend.run(&["share", "list", session]).code, 1);
    assert!(
        owner
            .fail(&["share", "change", session, "Stranger", "--level", "admin"])
            .contains("No one with whom this computer has shared anything is called")
    );
    let changed = owner.succeed(&["share", "change", session, "a friend", "--level", "admin"]);
    assert!(changed.starts_with("“A friend” ("), "the name is the server's: {changed}");
    assert!(friend.fail(&["session", "rename", session, " "]).contains("empty"));
    friend.succeed(&["session", "rename", session, "Our plans"]);
    assert!(owner.succeed(&["session", "show", session]).contains("Our plans"));

    // The share is removed: the key changes, and the owner can still read the earlier messages.
    owner.succeed(&["share", "remove", session, &them]);
    assert_eq!(friend.run(&["session", "read", session]).code, 1);
    let after = owner.json(&["session", "show", session]);
    assert_eq!(after["session"]["rekeyNeeded"], false);
    // The change of the level made a new key, too.
    assert_eq!(after["session"]["keyEpoch"].as_i64(), stored["session"]["keyEpoch"].as_i64().map(|epoch| epoch + 2));
    owner.succeed(&["session", "send", session, "Alone again"]);
    assert_eq!(owner.json_lines(&["session", "read", session, "--all"]).len(), 5);
    let whoami = friend.succeed(&["whoami"]);
    let key = whoami.lines().find_map(|line| line.strip_prefix("fingerprint")).unwrap().trim().to_owned();
    owner.succeed(&["share", "add", session, &key]);
    assert_eq!(friend.json_lines(&["session", "read", session, "--all"]).len(), 5);

    owner.succeed(&["session", "end", session]);
    assert_eq!(
        owner.json(&["session", "show", "last"])["session"]["id"],
        id,
        "what has ended was used last all the same"
    );
    assert!(!owner.succeed(&["session", "list"]).contains(session));
    assert!(owner.succeed(&["session", "list", "--all"]).contains("ended"));
    assert_eq!(owner.run(&["session", "delete", session]).code, 1, "without a terminal it needs --yes");
    let record = record_of(&owner, id);
    assert!(record.exists());
    owner.succeed(&["session", "delete", session, "--yes"]);
    assert!(!record.exists(), "a session that is gone is not remembered");
    assert_eq!(friend.run(&["session", "show", session]).code, 1);
    assert!(
        owner.fail(&["session", "show", "last"]).contains("`ensemble session list` shows them"),
        "and what is gone is not"
    );
}

#[test]
fn a_name_is_that_of_the_person_with_whom_something_was_shared_first() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &["--no-runner"]);
    let [first, second] = [User::new(Some(&url)), User::new(Some(&url))];
    let ids = [&first, &second].map(|user| text(&user.json(&["login", "--name", "Bob"]), "/id").to_owned());
    let [one, other] = ["One", "Other"]
        .map(|title| text(&owner.json(&["session", "create", "--title", title]), "/session/ref").to_owned());
    assert!(owner.fail(&["share", "add", &one, "Bob"]).contains("No one with whom"), "nothing was shared yet");
    owner.succeed(&["share", "add", &one, &ids[0]]);
    // A session that another user shares becomes the last one when it was used here.
    assert!(first.fail(&["session", "read", "last"]).contains("No session was used on this device yet"));
    first.succeed(&["session", "read", &one]);
    assert_eq!(text(&first.json(&["session", "show", "last"]), "/session/ref"), one);
    assert_eq!(text(&owner.json(&["session", "show", "last"]), "/session/ref"), other, "each device has its own");

    owner.succeed(&["share", "add", &one, &ids[1]]);
    let added = owner.run(&["share", "add", &other, "bob"]);
    assert!(added.code == 0 && added.out.contains(&ids[0]), "{}{}", added.out, added.err);
    assert_eq!(text(&first.json(&["session", "show", "last"]), "/session/ref"), one, "and not the newest one");
    assert_eq!(second.run(&["session", "read", &other]).code, 1);
    owner.succeed(&["share", "change", &other, "Bob", "--level", "edit"]);
    owner.succeed(&["share", "remove", &other, "Bob"]);
    assert_eq!(first.run(&["session", "read", &other]).code, 1);
}

#[test]
fn the_complete_link_is_needed_to_read() {
    let owner = User::new(None);
    let (running, url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["machine", "register", "--id", "laptop"]);
    let session = text(&owner.json(&["session", "create", "-t", "Open house"]), "/session/id").to_owned();
    for number in 0..3 {
        owner.succeed(&["session", "send", &session, &format!("number {number}")]);
    }
    let link = owner.json(&["share", "link", &session, "--max-uses", "2", "--expires", "1h"]);
    let address = text(&link, "/address");
    assert!(address.starts_with(&url) && address.contains("#v1."), "{address}");

    let visitor = User::new(None);
    let read = visitor.json_lines(&["share", "open", address]);
    assert_eq!(texts(&read), ["number 0", "number 1", "number 2"]);
    // Everyone who may write could have given it a title, so it is shown by its id.
    let shown = visitor.succeed(&["share", "open", address]);
    assert!(shown.starts_with(&session) && !shown.contains("Open house"), "{shown}");
    let used_up = visitor.run(&["share", "open", address]);
    assert!(used_up.code == 1 && used_up.err.contains("used up"), "{}", used_up.err);

    let again = owner.json(&["share", "link", &session]);
    let address = text(&again, "/address");
    // As of the session of a machine, which the server passes off as one of people.
    let machine = format!("{address}.{}", "A".repeat(43));
    let refused = visitor.run(&["share", "open", &machine]);
    assert!(refused.code == 1 && refused.err.contains("the link names one"), "{}", refused.err);
    assert!(!refused.out.contains("number"), "{}", refused.out);
    let wrong = format!("{}#v1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", address.split('#').next().unwrap());
    assert!(visitor.run(&["share", "open", &wrong]).err.contains("cannot be decrypted"));
    owner.succeed(&["share", "unlink", &session]);
    assert_eq!(visitor.run(&["share", "open", address]).code, 1);
    assert_eq!(running.interrupt(), 0, "Ctrl-C ends `up`");
}

#[test]
fn messages_are_followed_live() {
    let owner = User::new(None);
    let (_up, _url) = up(&owner, &[]);
    let session = text(&owner.json(&["session", "create"]), "/session/id").to_owned();
    owner.succeed(&["session", "send", &session, "before"]);
    let mut follower = Running::start(&owner, &["session", "follow", &session, "--after", "0", "--json"]);
    let next = |follower: &mut Running| serde_json::from_str::<Value>(&follower.line()).unwrap();
    assert_eq!(text(&next(&mut follower), "/body/text"), "before");
    owner.succeed(&["session", "send", &session, "after"]);
    assert_eq!(text(&next(&mut follower), "/body/text"), "after");
    assert_eq!(follower.interrupt(), 0);
}

#[test]
fn an_account_moves_with_its_key() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &[]);
    let session = text(&owner.json(&["session", "create", "--title", "Elsewhere"]), "/session/id").to_owned();
    let elsewhere = User::new(Some(&url));
    let key = owner.home().join("ensemble/account.key");
    elsewhere.succeed(&["login", "--key", key.to_str().unwrap()]);
    assert_eq!(elsewhere.json(&["whoami"]), owner.json(&["whoami"]));
    assert_eq!(text(&elsewhere.json(&["session", "show", &session]), "/metadata/title"), "Elsewhere");
    assert!(elsewhere.succeed(&["logout"]).contains("account.key"));
    elsewhere.succeed(&["login"]);

    let machines = elsewhere.json(&["machine", "list"]);
    let machine = text(&machines, "/machines/0/machine/id");
    assert!(!text(&machines, "/machines/0/machine/metadata").contains("linux"));
    assert_eq!(text(&machines, "/machines/0/metadata/os"), std::env::consts::OS);
    elsewhere.succeed(&["machine", "show", machine]);
    assert!(elsewhere.fail(&["machine", "delete", machine]).contains("--yes"), "without a terminal it needs --yes");
    elsewhere.succeed(&["machine", "delete", machine, "--yes"]);
    assert_eq!(elsewhere.run(&["machine", "show", machine]).code, 1);
}

#[test]
fn a_link_of_a_machines_session_shows_what_the_machine_has_signed() {
    let place = Place::new();
    let owner = &place.user;
    let (_up, _url) = up(owner, &["--no-runner"]);
    let session = place.start(&["claude", "[[say violets are blue]]"]);
    turns(owner, &session, 1);
    owner.succeed(&["session", "send", &session, "words of a server"]);
    let link = owner.json(&["share", "link", &session]);
    let address = text(&link, "/address");

    let visitor = User::new(None);
    let read = visitor.succeed(&["share", "open", address]);
    assert!(read.contains("> [[say violets are blue]]") && read.contains("\nviolets are blue\n"), "{read}");
    assert!(!read.contains("words of a server") && read.contains("counts for nothing"), "{read}");
    let lines = visitor.json_lines(&["share", "open", address]);
    let is_said = |line: &&Value| line["author"]["host"] == true && line["body"]["text"] == "violets are blue";
    assert_eq!(lines.iter().filter(is_said).count(), 1, "{lines:?}");
    let unsigned: Vec<_> = lines.iter().filter(|line| line["author"]["unsigned"].is_string()).collect();
    assert!(unsigned.len() == 1 && unsigned[0]["body"].is_null(), "{unsigned:?}");

    let (bare, _) = address.rsplit_once('.').unwrap();
    let refused = visitor.run(&["share", "open", bare]);
    assert!(refused.code == 1 && refused.err.contains("cannot be checked"), "{}", refused.err);
    owner.succeed(&["stop", &session]);
}
