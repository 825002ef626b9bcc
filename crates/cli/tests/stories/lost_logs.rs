//! The machine's log of a live session is damaged, of another version or older than what it has sent: the session continues, and
//! nothing is done twice.

use std::fs;
use std::path::{Path, PathBuf};

use ensemble_doubles::model::claude_has_stored;
use serde_json::Value;

use crate::ensemble::{User, up};
use crate::linking::add;
use crate::live::{assert_whole, host_of, kill, log, request, runs_in, seen, turns, until};
use crate::place::Place;

/// The folder of the only session that the machine hosts.
fn folder(user: &User) -> PathBuf {
    let only = |path: PathBuf| fs::read_dir(path).unwrap().next().unwrap().unwrap().path();
    only(only(user.files().join("hosts")).join("sessions"))
}

/// Ends the host as a power failure does.
fn end(user: &User) {
    let host = host_of(user).unwrap();
    kill(host);
    until("the end of the host", || (host_of(user) != Some(host)).then_some(()));
}

fn texts<'a>(log: &'a [Value], kind: &str) -> Vec<&'a str> {
    log.iter().filter(|body| body["type"] == kind).filter_map(|body| body["text"].as_str()).collect()
}

/// A session with a turn that has ended, and one in which the agent asks.
fn asks(user: &User, place: &Place) -> String {
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    user.succeed(&["prompt", &session, "[[run touch made]]"]);
    request(user, &session);
    session
}

/// The session continues with the same conversation, and people know what has happened. Returns its log.
#[track_caller]
fn continues(user: &User, session: &str, says: &str) -> Vec<Value> {
    let before = log(user, session).len();
    user.succeed(&["prompt", session, "[[say after it]]"]);
    let has_ended = |log: &[Value]| {
        let last = log.iter().rposition(|body| body["type"] == "turn" && body["state"] == "ended")?;
        let is_said = texts(log, "text").contains(&"after it");
        (last > before && is_said && last > log.iter().rposition(|body| body["text"] == "after it")?).then_some(())
    };
    let ((), log) = seen(user, session, "the turn after the loss", has_ended);
    assert_whole(&log);
    assert!(texts(&log, "error").iter().any(|text| text.contains(says)), "{says}: {log:#?}");
    let started = log.iter().filter(|body| body["type"] == "turn" && body["state"] == "started").count();
    let ended = log.iter().filter(|body| body["type"] == "turn" && body["state"] == "ended").count();
    assert_eq!(started, ended, "no turn is left open: {log:#?}");
    let conversations: std::collections::HashSet<&str> =
        log.iter().filter_map(|body| body["providerSessionId"].as_str()).collect();
    assert_eq!(conversations.len(), 1, "the same conversation");
    log
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_damaged_log_is_set_aside_and_the_session_continues() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = asks(user, &place);
    let asked = request(user, &session);
    let phone = User::new(None);
    add(user, &phone, &[]);
    end(user);
    // It is at the server before the loss is found, and the machine gets it afterwards.
    phone.run(&["prompt", &session, "[[run touch late]]"]);
    let snapshot = folder(user).join("snapshot.json");
    let mut bytes = fs::read(&snapshot).unwrap();
    bytes[0] ^= 1;
    fs::write(&snapshot, &bytes).unwrap();
    let log = continues(user, &session, "snapshot.json cannot be read");
    let withdrawn = log.iter().find(|body| body["type"] == "resolved").unwrap();
    assert_eq!((&withdrawn["requestId"], &withdrawn["outcome"]), (&asked.into(), &"withdrawn".into()));
    assert!(!place.file("made").exists(), "what was asked is not done");
    let late = log.iter().find(|body| body["type"] == "prompt" && body["text"] == "[[run touch late]]").unwrap();
    let receipt = log.iter().find(|body| body["type"] == "receipt" && body["commandId"] == late["localId"]).unwrap();
    assert_eq!((&receipt["outcome"], &receipt["code"]), (&"rejected".into(), &"stale".into()));
    let aside = folder(user).parent().unwrap().with_file_name("lost");
    let kept = fs::read_dir(aside).unwrap().next().unwrap().unwrap().path().join("snapshot.json");
    assert_eq!(fs::read(kept).unwrap(), bytes);

    // Another version of the program has written it, and it happens again.
    end(user);
    let text = fs::read_to_string(&snapshot).unwrap();
    fs::write(&snapshot, text.replacen("\"v\":1", "\"v\":0", 1)).unwrap();
    continues(user, &session, "another version of Ensemble (format 0)");

    // A restart after it is one like any other.
    end(user);
    user.succeed(&["prompt", &session, "[[say at last]]"]);
    let is_said = |log: &[Value]| texts(log, "text").contains(&"at last").then_some(());
    let ((), log) = seen(user, &session, "the last turn", is_said);
    assert_eq!(texts(&log, "error").len(), 2, "{log:#?}");
    user.succeed(&["stop", &session]);
    assert_whole(&crate::live::log(user, &session));
}

#[test]
fn a_log_from_a_backup_does_nothing_twice() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    end(user);
    let (folder, backup) = (folder(user), user.home().join("backup"));
    copy(&folder, &backup);
    user.succeed(&["prompt", &session, "[[say only once]]"]);
    turns(user, &session, 2);
    end(user);
    fs::remove_dir_all(&folder).unwrap();
    copy(&backup, &folder);
    let log = continues(user, &session, "older than what this machine has sent");
    // The restored log does not know the second prompt, and the server has it.
    assert_eq!(texts(&log, "text"), ["first", "only once", "after it"]);
    let names: std::collections::HashSet<&str> = log.iter().filter_map(|body| body["localId"].as_str()).collect();
    assert_eq!(names.len(), log.len(), "no name was used twice");
    user.succeed(&["stop", &session]);
}

#[test]
fn of_two_copies_of_a_machine_the_one_that_was_started_last_hosts() {
    let (first, second) = (Place::new(), Place::new());
    let (user, copy) = (&first.user, &second.user);
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = first.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    assert!(runs_in(user.home()));
    until("the conversation in claude's files", || claude_has_stored(user.home(), r#""text":"first""#).then_some(()));
    let mut cp = std::process::Command::new("cp");
    assert!(cp.args(["-a", "-T"]).args([user.home(), copy.home()]).status().unwrap().success());

    // Its host starts with another session, and hosts this one as well.
    let another = second.start(&["claude", "[[say another]]"]);
    until("the end of the first machine's agent", || (!runs_in(user.home())).then_some(()));
    turns(copy, &another, 1);
    copy.succeed(&["prompt", &session, "[[say from the copy]]"]);
    let log = turns(copy, &session, 2);
    assert_whole(&log);
    assert_eq!(texts(&log, "text"), ["first", "from the copy"]);
    assert!(!runs_in(user.home()));
}
