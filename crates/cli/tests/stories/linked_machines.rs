//! A machine is a separate entry in the device list: on the computer of its owner, or on one that does not have the account.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ensemble::{Running, User, up, wait_for_runner};
use crate::lies::newest_list;
use crate::linking::{Dialog, add, join, link};
use crate::live::{turns, until};
use crate::lying::LyingServer;
use crate::scripted;

fn devices(user: &User) -> Vec<Value> {
    user.json(&["devices"])["devices"].as_array().unwrap().clone()
}

fn with_role<'d>(devices: &'d [Value], role: &str) -> Vec<&'d Value> {
    devices.iter().filter(|device| device["role"] == role).collect()
}

#[test]
fn a_runner_is_a_device_of_its_own() {
    let owner = User::new(None);
    let (_up, _url) = up(&owner, &[]);
    wait_for_runner(&owner);
    let listed = devices(&owner);
    let machines = with_role(&listed, "machine");
    assert_eq!((listed.len(), machines.len()), (2, 1), "{listed:?}");
    let machine = owner.json(&["machine", "list"])["machines"][0]["machine"]["id"].clone();
    assert_eq!((&machines[0]["machineId"], &machines[0]["kind"]), (&machine, &json!("runner")));
    // Registered again, it keeps its key.
    owner.succeed(&["machine", "register"]);
    assert_eq!(with_role(&devices(&owner), "machine")[0]["publicKey"], machines[0]["publicKey"]);
    // A machine that lost its key gets another one, and the lost one is not listed any more.
    let key = walk(&owner).into_iter().find(|path| path.extension().is_some_and(|end| end == "key")).unwrap();
    std::fs::remove_file(&key).unwrap();
    owner.succeed(&["machine", "register"]);
    let after = devices(&owner);
    let machines_after = with_role(&after, "machine");
    assert_eq!(machines_after.len(), 1);
    assert_ne!(machines_after[0]["publicKey"], machines[0]["publicKey"]);
    owner.succeed(&["machine", "delete", machine.as_str().unwrap(), "--yes"]);
    assert_eq!(with_role(&devices(&owner), "machine").len(), 0);
}

#[test]
fn a_machine_keeps_its_key_whatever_the_server_calls_new() {
    let server = LyingServer::start();
    let owner = User::new(Some(&server.url));
    owner.succeed(&["login"]);
    owner.succeed(&["machine", "register"]);
    let machine = owner.json(&["machine", "list"])["machines"][0]["machine"].clone();
    let files = || -> BTreeMap<_, _> {
        walk(&owner).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    };
    let before = (newest_list(&owner), files());
    server.refuse_with(move |line| (line == "POST /v1/machines").then(|| (201, machine.clone())));
    let said = owner.run(&["machine", "register"]);
    assert_eq!((newest_list(&owner), files()), before, "{}", said.err);
    assert!(said.code == 0 && said.err.contains("It keeps the key"), "{}", said.err);
    server.tell_the_truth();
    assert!(!owner.run(&["machine", "register"]).err.contains("It keeps the key"));
}

#[test]
fn a_machine_whose_key_was_removed_gets_another_one_and_loses_none() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["machine", "register"]);
    add(&owner, &second, &[]);
    let before = with_role(&devices(&owner), "machine")[0]["publicKey"].as_str().unwrap().to_owned();
    let [file] = walk(&owner).try_into().unwrap();
    let key = std::fs::read(&file).unwrap();
    second.succeed(&["devices", "remove", &before, "--yes"]);
    let said = owner.run(&["machine", "register"]);
    let listed = devices(&owner);
    let now = with_role(&listed, "machine");
    assert_eq!(now.len(), 1);
    assert_ne!(now[0]["publicKey"], before);
    assert_ne!(std::fs::read(&file).unwrap(), key);
    let kept: Vec<_> = walk(&owner).into_iter().filter(|path| std::fs::read(path).unwrap() == key).collect();
    assert_eq!(kept.len(), 1, "{}", said.err);
    let is_said = said.err.contains("gets another one") && said.err.contains(kept[0].to_str().unwrap());
    assert!(said.code == 0 && is_said, "{kept:?}: {}", said.err);
}

/// The files below `machines`.
fn walk(user: &User) -> Vec<std::path::PathBuf> {
    let servers = std::fs::read_dir(user.files().join("machines")).unwrap();
    servers
        .flat_map(|server| std::fs::read_dir(server.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

#[test]
fn a_computer_without_the_account_is_linked_as_a_machine() {
    let (owner, builder) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let (mut first, address) = link(&owner, &[]);
    let mut new = Dialog::start(&builder, &["runner", "link"]);
    new.answer(&address);
    new.until("other device: ");
    let digits = new.until("\n").trim().to_owned();
    let said = first.until("new device shows: ");
    assert!(said.contains("a runner"), "{said}");
    first.answer(&digits);
    let (code, said) = first.end();
    assert_eq!(code, 0, "{said}");
    let (code, said) = new.end();
    assert_eq!(code, 0, "{said}");
    assert!(!builder.files().join("account.key").exists(), "it does not have the account");
    assert!(builder.fail(&["session", "list"]).contains("not signed in"));
    let status = builder.run(&["status"]).out;
    assert!(status.contains("whose machine this is"), "{status}");

    let runner = Running::start(&builder, &["runner"]);
    until("the machine is online", || {
        (owner.json(&["machine", "list"])["machines"][0]["machine"]["online"] == true).then_some(())
    });
    let checked = builder.run(&["doctor", "--json"]).out;
    let findings: Value = serde_json::from_str(&checked).unwrap();
    let found = findings["checks"].as_array().unwrap().iter().find(|one| one["check"] == "machine").unwrap();
    assert!(found["found"].as_str().unwrap().starts_with("linked as"), "{checked}");
    let listed = devices(&owner);
    let machine = with_role(&listed, "machine")[0].clone();
    assert_eq!(machine["kind"], "runner");
    let (name, id) = (machine["name"].as_str().unwrap(), machine["machineId"].as_str().unwrap());
    assert_eq!(owner.json(&["machine", "show", name])["machine"]["id"], id);
    let is_plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    assert!(id.strip_prefix("m-").is_some_and(|rest| rest.len() == 10 && rest.chars().all(is_plain)), "{id}");
    // When it is removed, its runner ends.
    let key = machine["publicKey"].as_str().unwrap();
    owner.succeed(&["devices", "remove", key, "--yes"]);
    assert_eq!(runner.ended(), 1);
    assert_eq!(owner.json(&["machine", "list"])["machines"], json!([]));
    assert_eq!(devices(&owner).len(), 1);
    assert!(builder.fail(&["runner"]).contains("not signed in"), "it is no machine of that account any more");
}

#[test]
fn the_machines_of_a_removed_computer_are_removed_too() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["machine", "register"]);
    add(&owner, &second, &[]);
    second.succeed(&["machine", "register"]);
    let listed = devices(&owner);
    assert_eq!(with_role(&listed, "machine").len(), 2);
    let other = with_role(&listed, "primary").into_iter().find(|device| device["current"] == false).unwrap();
    owner.succeed(&["devices", "remove", other["publicKey"].as_str().unwrap(), "--yes"]);
    let after = devices(&owner);
    assert_eq!((after.len(), with_role(&after, "machine").len()), (2, 1), "its own machine stays");
    assert_eq!(owner.json(&["machine", "list"])["machines"].as_array().unwrap().len(), 1);
}

#[test]
fn a_linking_that_was_killed_resumes() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let (mut first, address) = link(&owner, &[]);
    let (killed, digits) = join(&second, &address);
    drop(killed);
    first.until("new device shows: ");
    first.answer(&digits);
    assert_eq!(first.end().0, 0);
    assert!(!second.files().join("account.key").exists());
    // The same command resumes, and asks for nothing.
    let ended = second.run(&["login", "--link"]);
    assert!(ended.code == 0 && ended.err.contains("Resuming"), "{}", ended.err);
    assert_eq!(second.json(&["whoami"])["id"], owner.json(&["whoami"])["id"]);
    assert_eq!(devices(&second).len(), 2);
    assert!(!second.files().join("pending.json").exists());
}

#[test]
fn a_linking_that_is_interrupted_is_over() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let (mut first, address) = link(&owner, &[]);
    let (waiting, _digits) = join(&second, &address);
    first.until("new device shows: ");
    first.interrupt();
    first.until("The linking was ended");
    assert_eq!(first.end().0, 1);
    let (code, said) = waiting.end();
    assert!(code == 1 && said.contains("refused this one"), "{said}");
    assert_eq!(devices(&owner).len(), 1);
}

#[test]
fn the_sessions_of_a_deleted_machine_get_new_keys_at_once() {
    let (owner, _programs) = scripted::user();
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let runner = Running::start(&owner, &["runner"]);
    wait_for_runner(&owner);
    let session = owner.succeed(&["claude", "one", "--detach"]).trim().to_owned();
    turns(&owner, &session, 1);
    let epoch = || owner.json(&["session", "show", &session])["session"]["keyEpoch"].clone();
    assert_eq!(epoch(), 1);
    let machine = owner.json(&["machine", "list"])["machines"][0]["machine"]["id"].clone();
    drop(runner);
    let deleted = owner.json(&["machine", "delete", machine.as_str().unwrap(), "--yes"]);
    assert_eq!(deleted["rekeyed"], 1, "{deleted}");
    // Reading it makes no key.
    assert_eq!(epoch(), 2);
}

#[test]
fn a_machine_confirms_that_a_device_was_removed() {
    let (owner, second, third) = (User::new(None), User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    add(&owner, &second, &[]);
    add(&owner, &third, &[]);
    let runner = Running::start(&owner, &["runner"]);
    wait_for_runner(&owner);
    let others = || -> Vec<String> {
        let listed = devices(&owner);
        let primaries = with_role(&listed, "primary").into_iter().filter(|device| device["current"] == false);
        primaries.map(|device| device["publicKey"].as_str().unwrap().to_owned()).collect()
    };
    let machine = || owner.json(&["machine", "list"])["machines"][0]["machine"].clone();
    let remove = |key: &str| owner.run(&["devices", "remove", key, "--yes", "--json"]);
    let unconfirmed = |out: &str| serde_json::from_str::<Value>(out).unwrap()["unconfirmed"].clone();

    let removed = remove(&others()[0]);
    assert_eq!(unconfirmed(&removed.out), json!([]), "{}", removed.err);
    assert_eq!(machine()["seen"]["version"], owner.json(&["devices"])["version"]);
    assert_eq!(owner.json(&["status"])["unconfirmed"], json!([]));
    // What it is called is sealed with a key that the removed device does not have.
    let listed = owner.json(&["machine", "list"])["machines"][0].clone();
    assert_eq!(
        (&listed["machine"]["contentEpoch"], listed["metadata"]["host"].is_string()),
        (&json!(2), true),
        "{listed}"
    );

    // A machine that is not there has obeyed the device until then.
    runner.interrupt();
    until("the machine is offline", || (machine()["online"] == false).then_some(()));
    let removed = remove(&others()[0]);
    assert_eq!(unconfirmed(&removed.out), json!([machine()["id"]]), "{}", removed.err);
    assert!(removed.err.contains("has not confirmed the removal"), "{}", removed.err);
    let status = owner.succeed(&["status"]);
    assert!(status.contains("has not confirmed that a device was removed"), "{status}");
    assert_eq!(owner.json(&["status"])["unconfirmed"].as_array().unwrap().len(), 1);
    let _runner = Running::start(&owner, &["runner"]);
    until("the machine confirms it", || (owner.json(&["status"])["unconfirmed"] == json!([])).then_some(()));
}
