//! Two people, one session: made, written, shared, taken away, published. The server sees nothing of it.

use serde_json::Value;

use crate::ensemble::{Going, Person, up};

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn texts(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| text(line, "/body/text")).collect()
}

#[test]
fn a_session_is_shared_and_taken_away() {
    let owner = Person::new(None);
    let (_up, url) = up(&owner, &[]);
    let friend = Person::new(Some(&url));
    let me = text(&owner.json(&["whoami"]), "/id").to_owned();
    let them = text(&friend.json(&["login", "--name", "A friend"]), "/id").to_owned();
    assert_ne!(me, them);

    let session = text(&owner.json(&["session", "create", "--title", "Secret plans"]), "/id").to_owned();
    let session = session.as_str();
    owner.says(&["session", "send", session, "Hello", "there"]);
    let sent = owner.types_with(&["session", "send", session, "-"], "two\nlines 🙂");
    assert_eq!(sent.code, 0, "{}", sent.err);
    owner.says(&["session", "send", session, "once", "--local-id", "1"]);
    assert!(owner.says(&["session", "send", session, "twice", "--local-id", "1"]).contains("already"));

    // What the server has of it.
    let stored = owner.json(&["session", "show", session]);
    assert_eq!(text(&stored, "/metadata/title"), "Secret plans");
    assert!(!text(&stored, "/session/metadata").contains("Secret"));
    assert!(owner.says(&["session", "list"]).contains("Secret plans"));

    // A stranger knows nothing of it.
    assert_eq!(friend.types(&["session", "read", session]).code, 1);

    owner.says(&["share", "add", session, &them, "--level", "edit"]);
    assert!(owner.says(&["share", "list", session]).contains("A friend"));
    let read = friend.json_lines(&["session", "read", session]);
    assert_eq!(texts(&read), ["Hello there", "two\nlines 🙂", "once"]);
    assert!(friend.says(&["session", "list", "--shared"]).contains("Secret plans"));
    friend.says(&["session", "send", session, "Hi!"]);
    assert_eq!(texts(&owner.json_lines(&["session", "read", session, "-n", "1"])), ["Hi!"]);
    // What they may not.
    assert_eq!(friend.types(&["session", "rename", session, "Mine"]).code, 1);
    assert_eq!(friend.types(&["share", "list", session]).code, 1);
    owner.says(&["share", "change", session, &them, "--level", "admin"]);
    friend.says(&["session", "rename", session, "Our plans"]);
    assert!(owner.says(&["session", "show", session]).contains("Our plans"));

    // Taken away: the key changes, and what was there before can still be read by who may.
    owner.says(&["share", "remove", session, &them]);
    assert_eq!(friend.types(&["session", "read", session]).code, 1);
    let after = owner.json(&["session", "show", session]);
    assert_eq!(after["session"]["rekeyNeeded"], false);
    assert_eq!(after["session"]["keyEpoch"].as_i64(), stored["session"]["keyEpoch"].as_i64().map(|epoch| epoch + 1));
    owner.says(&["session", "send", session, "Alone again"]);
    assert_eq!(owner.json_lines(&["session", "read", session, "--all"]).len(), 5);
    owner.says(&["share", "add", session, &them]);
    assert_eq!(friend.json_lines(&["session", "read", session, "--all"]).len(), 5);

    owner.says(&["session", "end", session]);
    assert!(!owner.says(&["session", "list"]).contains(session));
    assert!(owner.says(&["session", "list", "--all"]).contains("ended"));
    assert_eq!(owner.types(&["session", "delete", session]).code, 1, "nobody was asked");
    owner.says(&["session", "delete", session, "--yes"]);
    assert_eq!(friend.types(&["session", "show", session]).code, 1);
}

#[test]
fn whoever_has_the_whole_link_reads_and_nobody_else() {
    let owner = Person::new(None);
    let (going, url) = up(&owner, &["--no-runner"]);
    owner.says(&["machine", "register", "--id", "laptop"]);
    let session = text(&owner.json(&["session", "create", "-t", "Open house"]), "/id").to_owned();
    for number in 0..3 {
        owner.says(&["session", "send", &session, &format!("number {number}")]);
    }
    let link = owner.json(&["share", "link", &session, "--max-uses", "2", "--expires", "1h"]);
    let address = text(&link, "/address");
    assert!(address.starts_with(&url) && address.contains("#v1."), "{address}");

    let passer_by = Person::new(None);
    let read = passer_by.json_lines(&["share", "open", address]);
    assert_eq!(texts(&read), ["number 0", "number 1", "number 2"]);
    assert!(passer_by.says(&["share", "open", address]).contains("Open house"));
    let used_up = passer_by.types(&["share", "open", address]);
    assert!(used_up.code == 1 && used_up.err.contains("used up"), "{}", used_up.err);

    let again = owner.json(&["share", "link", &session]);
    let address = text(&again, "/address");
    let wrong = format!("{}#v1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", address.split('#').next().unwrap());
    assert!(passer_by.types(&["share", "open", &wrong]).err.contains("cannot be decrypted"));
    owner.says(&["share", "unlink", &session]);
    assert_eq!(passer_by.types(&["share", "open", address]).code, 1);
    assert_eq!(going.interrupt(), 0, "Ctrl-C is the way to end `up`");
}

#[test]
fn messages_are_followed_as_they_come() {
    let owner = Person::new(None);
    let (_up, _url) = up(&owner, &[]);
    let session = text(&owner.json(&["session", "create"]), "/id").to_owned();
    owner.says(&["session", "send", &session, "before"]);
    let mut follower = Going::start(&owner, &["session", "follow", &session, "--after", "0", "--json"]);
    let next = |follower: &mut Going| serde_json::from_str::<Value>(&follower.line()).unwrap();
    assert_eq!(text(&next(&mut follower), "/body/text"), "before");
    owner.says(&["session", "send", &session, "after"]);
    assert_eq!(text(&next(&mut follower), "/body/text"), "after");
    assert_eq!(follower.interrupt(), 0);
}

#[test]
fn an_account_moves_with_its_key() {
    let owner = Person::new(None);
    let (_up, url) = up(&owner, &[]);
    let session = text(&owner.json(&["session", "create", "--title", "Elsewhere"]), "/id").to_owned();
    let elsewhere = Person::new(Some(&url));
    let key = owner.home().join("ensemble/account.key");
    elsewhere.says(&["login", "--key", key.to_str().unwrap()]);
    assert_eq!(elsewhere.json(&["whoami"]), owner.json(&["whoami"]));
    assert_eq!(text(&elsewhere.json(&["session", "show", &session]), "/metadata/title"), "Elsewhere");
    assert!(elsewhere.says(&["logout"]).contains("account.key"));

    let machines = elsewhere.json(&["machine", "list"]);
    let machine = text(&machines, "/machines/0/id");
    assert!(!text(&machines, "/machines/0/metadata").contains("linux"));
    elsewhere.says(&["machine", "show", machine]);
    elsewhere.says(&["machine", "delete", machine]);
    assert_eq!(elsewhere.types(&["machine", "show", machine]).code, 1);
}
