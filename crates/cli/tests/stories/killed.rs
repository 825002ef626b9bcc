//! A command that changes keys and is killed after any of its requests: no one who should have access loses it, and the next command
//! does what was left.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::ensemble::User;
use crate::linking::add;
use crate::live::{
    WithGuest, has_no_right, host_of, kill as kill_host, log, right_of, seen, takes, turns, until, with_guest,
};
use crate::lying::LyingServer;
use crate::place::Place;

/// Runs a command and kills it when the server has carried out a request, before the command gets the answer. Returns whether it
/// was killed.
pub(crate) fn killed_at(
    server: &LyingServer,
    user: &User,
    arguments: &[&str],
    at: impl Fn(usize, &str) -> bool + Send + 'static,
) -> bool {
    let (mut child, is_killed) = sent_at(server, user, arguments, Signal::SIGKILL, at);
    child.wait().unwrap();
    server.tell_the_truth();
    is_killed.load(Ordering::SeqCst)
}

/// Begins a command and sends it a signal when the server has carried out a request, before the command gets the answer. Returns
/// it, and whether it was sent.
fn sent_at(
    server: &LyingServer,
    user: &User,
    arguments: &[&str],
    signal: Signal,
    at: impl Fn(usize, &str) -> bool + Send + 'static,
) -> (Child, Arc<AtomicBool>) {
    let (pid, count, is_sent) = (Arc::new(AtomicI32::new(0)), AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let (receiver, sent) = (pid.clone(), is_sent.clone());
    let (started, starts) = std::sync::mpsc::channel::<()>();
    let starts = std::sync::Mutex::new(Some(starts));
    server.lie(move |line, _| {
        if let Some(starts) = starts.lock().unwrap().take() {
            // Until the number of the process is known.
            let _ = starts.recv();
        }
        if at(count.fetch_add(1, Ordering::SeqCst), line) && !sent.swap(true, Ordering::SeqCst) {
            let _ = kill(Pid::from_raw(receiver.load(Ordering::SeqCst)), signal);
        }
    });
    let child = user.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    pid.store(i32::try_from(child.id()).unwrap(), Ordering::SeqCst);
    drop(started);
    (child, is_sent)
}

/// The text of the newest message and the epoch of its key.
pub(crate) fn last(user: &User, session: &str) -> (Value, Value) {
    let lines = user.json_lines(&["session", "read", session, "-n", "1"]);
    (lines[0]["body"]["text"].clone(), lines[0]["message"]["keyEpoch"].clone())
}

/// A user of the server with a session that a friend may edit.
pub(crate) fn shared(server: &LyingServer) -> (User, User, String) {
    let (owner, friend) = (User::new(Some(&server.url)), User::new(Some(&server.url)));
    owner.succeed(&["login"]);
    let them = friend.json(&["login"])["id"].as_str().unwrap().to_owned();
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["id"].as_str().unwrap().to_owned();
    owner.succeed(&["share", "add", &session, &them, "--level", "edit"]);
    (owner, friend, session)
}

#[test]
fn a_new_key_that_is_killed_at_any_step_reaches_everybody() {
    let server = LyingServer::start();
    let (owner, friend, session) = shared(&server);
    let mut step = 0;
    while killed_at(&server, &owner, &["session", "rekey", &session], move |count, _| count == step) {
        let word = format!("word {step}");
        // Any command of the owner finishes it.
        owner.succeed(&["session", "list"]);
        owner.succeed(&["session", "send", &session, &word]);
        assert_eq!(last(&friend, &session).0, *word, "step {step}");
        friend.succeed(&["session", "send", &session, "answer"]);
        assert_eq!(last(&owner, &session).0, "answer");
        step += 1;
    }
    assert!(step >= 4, "{step} requests");
    let settings: Value = serde_json::from_slice(&std::fs::read(owner.files().join("settings.json")).unwrap()).unwrap();
    let left =
        settings["unfinishedRekeys"].as_object().unwrap().values().filter(|some| **some != serde_json::json!({}));
    assert_eq!(left.count(), 0, "{settings}");
}

#[test]
fn a_program_that_is_stopped_while_it_changes_keys_is_named_by_those_that_wait_for_it() {
    let server = LyingServer::start();
    let (owner, friend, session) = shared(&server);
    let rekey = ["session", "rekey", session.as_str()];
    let (mut stopped, is_stopped) =
        sent_at(&server, &owner, &rekey, Signal::SIGSTOP, |_, line| line.starts_with("PATCH /v1/sessions/"));
    until("the program has stopped", || is_stopped.load(Ordering::SeqCst).then_some(()));
    server.tell_the_truth();

    let mut waiting = owner.command(&rekey).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let named =
        said.find(|line| line.as_ref().unwrap().contains("another command of yours is changing the keys of sessions"));
    assert!(named.is_some(), "the command ended without a word");
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");

    kill(Pid::from_raw(stopped.id().cast_signed()), Signal::SIGCONT).unwrap();
    assert!(stopped.wait().unwrap().success() && waiting.wait().unwrap().success());
    owner.succeed(&["session", "send", &session, "after"]);
    assert_eq!(last(&friend, &session).0, "after");
}

#[test]
fn a_removal_that_is_killed_is_finished_by_the_next_command() {
    let server = LyingServer::start();
    let (owner, friend, session) = shared(&server);
    let second = User::new(None);
    add(&owner, &second, &[]);
    let devices = owner.json(&["devices"]);
    let lost = devices["devices"].as_array().unwrap().iter().find(|device| device["current"] == false).unwrap().clone();
    let lost = lost["publicKey"].as_str().unwrap();
    let before = owner.json(&["session", "show", &session])["session"]["keyEpoch"].as_i64().unwrap();
    let is_change = |_, line: &str| line == "POST /v1/devices";
    assert!(killed_at(&server, &owner, &["devices", "remove", lost, "--yes"], is_change));
    assert!(second.fail(&["session", "list"]).contains("removed from its account"));
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && next.err.contains("Finishing the removal"), "{}", next.err);
    owner.succeed(&["session", "send", &session, "after"]);
    assert_eq!(last(&friend, &session), ("after".into(), (before + 1).into()));
}

/// A server that was restored from a backup gets the lists again only with the signature of each key that they add.
#[test]
fn what_vouches_for_a_new_key_outlives_the_command() {
    let server = LyingServer::start();
    let owner = User::new(Some(&server.url));
    owner.succeed(&["login"]);
    let is_change = |_, line: &str| line == "POST /v1/devices";
    assert!(killed_at(&server, &owner, &["machine", "register"], is_change));
    owner.succeed(&["session", "list"]);
    let file = std::fs::read(owner.files().join("own-lists.json")).unwrap();
    let kept = &serde_json::from_slice::<Value>(&file).unwrap()[server.url.as_str()];
    let lists = kept.as_object().unwrap().values().next().unwrap()["lists"].as_array().unwrap();
    let proofs = lists[1]["proofs"].as_object().unwrap_or_else(|| panic!("{kept:#}"));
    assert_eq!((lists.len(), proofs.len()), (2, 1), "{kept:#}");
}

#[test]
fn a_machine_hears_of_a_revocation_whose_command_was_killed() {
    let place = Place::new();
    let owner = &place.user;
    let WithGuest { up: _up, url, guest: editor, guest_id: editor_id, session } = with_guest(&place, "edit", &[]);
    let id = owner.json(&["session", "show", &session])["session"]["id"].as_str().unwrap().to_owned();
    let file = owner.files().join("settings.json");
    let settings = || serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap();
    let origin = url.trim_end_matches('/');
    // What such a command leaves.
    let leave = |version: i64| {
        let mut left = settings();
        let users = json!({ editor_id.as_str(): { "localId": format!("killed-{version}"), "version": version } });
        left["revocations"] = json!({ origin: { id.as_str(): users } });
        std::fs::write(&file, left.to_string()).unwrap();
    };
    let is_over = || settings()["revocations"][origin] == json!({});

    // What they were given later counts.
    leave(1);
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && !next.err.contains("asked again") && is_over(), "{}{}", next.err, settings());
    editor.succeed(&["prompt", &session, "[[say still]]"]);
    turns(owner, &session, 2);

    // A person who is given the right again while it is to be taken away has it.
    leave(right_of(&log(owner, &session), &editor_id).unwrap()["version"].as_i64().unwrap() + 1);
    owner.succeed(&["share", "change", &session, &editor_id, "--level", "edit"]);
    assert!(is_over(), "{}", settings());
    editor.succeed(&["prompt", &session, "[[say again]]"]);
    turns(owner, &session, 3);

    // A share to read gives no right to command: what was taken away stays so, although the machine has given it later.
    let shared = std::process::Command::new("curl")
        .args(["-s", "-f", "-X", "PATCH", "-H", "content-type: application/json", "-d", r#"{"accessLevel":"view"}"#])
        .args(["-H", &format!("Authorization: Bearer {}", owner.succeed(&["token"]).trim())])
        .arg(format!("{origin}/v1/sessions/{id}/shares/{editor_id}"))
        .output();
    assert!(shared.unwrap().status.success());
    leave(1);
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && next.err.contains("asked again"), "{}", next.err);
    seen(owner, &session, "the end of the right", |log| has_no_right(log, &editor_id));
    owner.succeed(&["share", "change", &session, &editor_id, "--level", "edit"]);
    editor.succeed(&["prompt", &session, "[[say once more]]"]);
    turns(owner, &session, 4);

    leave(i64::from(u32::MAX) * 1_000);
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && next.err.contains("asked again"), "{}", next.err);
    seen(owner, &session, "the revocation", |log| has_no_right(log, &editor_id));
    takes(&editor, &["prompt", &session, "[[say no more]]"], ("rejected", "not_allowed"));
    // Once the machine has confirmed it, it is over.
    let next = owner.run(&["session", "list"]);
    assert!(next.code == 0 && !next.err.contains("asked again") && is_over(), "{}{}", next.err, settings());
}

#[test]
fn share_ends_with_5_until_the_machine_confirms_that_a_guest_may_no_longer_prompt() {
    let place = Place::with_agent("claude", "claude");
    let owner = &place.user;
    let WithGuest { up: _up, url, guest: editor, guest_id: editor_id, session } =
        with_guest(&place, "edit", &["--no-runner"]);
    let host = Pid::from_raw(i32::try_from(host_of(owner).unwrap()).unwrap());
    kill(host, Signal::SIGSTOP).unwrap();
    for change in [
        ["share", "change", &session, &editor_id, "--level", "view"].as_slice(),
        &["share", "remove", &session, &editor_id],
    ] {
        let ended = owner.run(change);
        let is_said = ended.err.contains("has not confirmed that") && ended.err.contains("may no longer prompt");
        assert!(ended.code == 5 && is_said, "{}: {}{}", ended.code, ended.out, ended.err);
    }
    kill(host, Signal::SIGCONT).unwrap();
    seen(owner, &session, "the end of the right", |log| match right_of(log, &editor_id) {
        Some(right) if right["may"] != "none" => None,
        _ => Some(()),
    });
    editor.fail(&["prompt", &session, "[[say no more]]"]);
    until("nothing is left to be confirmed", || {
        owner.succeed(&["session", "list"]);
        let settings = std::fs::read(owner.files().join("settings.json")).unwrap();
        let settings: Value = serde_json::from_slice(&settings).unwrap();
        (settings["revocations"][url.trim_end_matches('/')] == json!({})).then_some(())
    });
}

/// The processes that host sessions for this person, and those that are about to.
fn hosts(user: &User) -> usize {
    let home = format!("ENSEMBLE_HOME={}", user.files().display());
    let is_host = |process: &std::fs::DirEntry| {
        let read = |file| std::fs::read(process.path().join(file)).unwrap_or_default();
        String::from_utf8_lossy(&read("cmdline")).ends_with("runner\0host\0")
            && String::from_utf8_lossy(&read("environ")).contains(&home)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_host).count()
}

#[test]
fn a_revocation_that_is_open_starts_no_more_than_one_host() {
    let place = Place::new();
    let owner = &place.user;
    let WithGuest { up: _up, url, guest: editor, guest_id: editor_id, session } =
        with_guest(&place, "edit", &["--no-runner"]);
    kill_host(host_of(owner).unwrap());
    until("the end of the host", || (hosts(owner) == 0).then_some(()));

    // An unknown user must not hold up the changes for the others.
    let unknown = "00000000-0000-7000-8000-000000000000";
    owner.fail(&["share", "remove", &session, unknown]);
    owner.succeed(&["share", "remove", &session, &editor_id]);
    assert_eq!(hosts(owner), 1);
    kill_host(host_of(owner).unwrap());
    until("the end of the host", || (hosts(owner) == 0).then_some(()));
    owner.succeed(&["session", "list"]);
    assert_eq!(hosts(owner), 0, "a list of sessions needs no host");
    let settings: Value = serde_json::from_slice(&std::fs::read(owner.files().join("settings.json")).unwrap()).unwrap();
    assert_eq!(settings["revocations"][url.trim_end_matches('/')], json!({}), "{settings}");
    editor.fail(&["prompt", &session, "[[say no more]]"]);
}
