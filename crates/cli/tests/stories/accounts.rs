//! Accounts are neither lost nor made without a word: commands at the same time, a lost key, logging out.

use std::fs;
use std::net::TcpListener;
use std::process::Child;

use ensemble_testkit::free_port;
use serde_json::Value;

use crate::ensemble::{User, up};

const KEY: &str = "account.key";

fn id(json: &Value) -> String {
    json["id"].as_str().unwrap_or_else(|| panic!("{json}")).to_owned()
}

/// Starts all commands before it waits for any. Returns the ids of the accounts.
fn at_once(user: &User, commands: usize) -> Vec<String> {
    let started: Vec<Child> = (0..commands).map(|_| user.command(&["login", "--json"]).spawn().unwrap()).collect();
    let ended = started.into_iter().map(|child| child.wait_with_output().unwrap());
    ended
        .map(|output| {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            id(&serde_json::from_slice(&output.stdout).unwrap())
        })
        .collect()
}

#[test]
fn commands_at_the_same_time_make_one_key() {
    let owner = User::new(None).with_variable("LIMIT_NEW_ACCOUNTS", "0").with_variable("LIMIT_SIGN_IN", "0");
    let (_up, url) = up(&owner, &["--no-runner"]);
    for round in 0..20 {
        let user = User::new(Some(&url));
        let mut ids = at_once(&user, 4);
        ids.push(id(&user.json(&["whoami"])));
        ids.dedup();
        assert_eq!(ids.len(), 1, "round {round}: {ids:?}");
    }
}

#[test]
fn up_and_login_at_the_same_time_use_one_key() {
    for round in 0..5 {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let user = User::new(Some(&format!("http://{address}")));
        let mut up = crate::ensemble::Running::start(&user, &["up", "--no-runner", "--json", "--listen", &address]);
        // The server is not reachable before it listens. Each try takes a second or two then.
        let mut tries = (0..60).map(|_| user.run(&["login", "--json"]));
        let ended = tries.find(|ended| !ended.err.contains("Nothing answers")).expect("up listens");
        assert_eq!(ended.code, 0, "round {round}: {}", ended.err);
        let signed_in: Value = serde_json::from_str(&ended.out).unwrap();
        let line = up.line();
        let printed: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("round {round}: {error}: {line}"));
        assert_eq!(printed["userId"], signed_in["id"], "round {round}");
        assert_eq!(id(&user.json(&["whoami"])), id(&signed_in), "round {round}");
    }
}

#[test]
fn a_lost_key_is_not_replaced_without_a_word() {
    let user = User::new(None);
    let (running, url) = up(&user, &["--no-runner"]);
    user.succeed(&["login"]);
    let old = id(&user.json(&["whoami"]));
    let (key, copy) = (user.files().join(KEY), user.home().join("copy"));
    fs::rename(&key, &copy).unwrap();

    for arguments in
        [["login"].as_slice(), &["whoami"], &["--server", &url, "login"], &["up", "--listen", "127.0.0.1:0"]]
    {
        let error = user.fail(arguments);
        assert!(error.contains(&old) && error.contains("login --key") && error.contains("login --new"), "{error}");
        assert!(!key.exists(), "{arguments:?}");
    }
    // Logging out does not forget it.
    user.succeed(&["logout"]);
    assert!(user.fail(&["login"]).contains(&old));
    fs::copy(&copy, user.home().join("wrong")).unwrap();
    let another = User::new(Some(&url));
    another.succeed(&["login"]);
    let wrong = another.files().join(KEY);
    assert!(user.fail(&["login", "--key", wrong.to_str().unwrap()]).contains(&old));
    assert!(!key.exists());

    user.succeed(&["login", "--key", copy.to_str().unwrap()]);
    assert_eq!(id(&user.json(&["whoami"])), old);
    // With the key in place no new account begins.
    assert!(user.fail(&["login", "--new"]).contains("safe place"));

    fs::remove_file(&key).unwrap();
    user.succeed(&["login", "--new"]);
    let new = id(&user.json(&["whoami"]));
    assert_ne!(new, old);
    assert!(user.fail(&["login", "--key", copy.to_str().unwrap()]).contains("safe place"));
    assert_eq!(id(&user.json(&["whoami"])), new);
    assert_eq!(running.interrupt(), 0);
}

#[test]
fn a_new_account_does_not_use_the_machine_of_the_old_one() {
    let user = User::new(None);
    let (_up, _url) = up(&user, &["--no-runner"]);
    user.succeed(&["machine", "register", "--id", "laptop"]);
    fs::remove_file(user.files().join(KEY)).unwrap();
    user.succeed(&["login", "--new"]);
    user.succeed(&["machine", "register", "--id", "laptop"]);
    let machines = user.json(&["machine", "list"]);
    assert_eq!(machines["machines"].as_array().unwrap().len(), 1);
    // The runner of this machine has a key in the list of the new account, and no other one.
    let files: Vec<_> = fs::read_dir(user.files().join("machines")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "a folder for each account: {files:?}");
    let id = user.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    let is_own = |path: &&std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&id);
    let directory = files.iter().find(is_own).unwrap();
    let key =
        ensemble_protocol::AccountKey::from_text(&fs::read_to_string(directory.join("laptop.key")).unwrap()).unwrap();
    let devices = user.json(&["devices"])["devices"].as_array().unwrap().clone();
    let machine = devices.iter().find(|device| device["role"] == "machine").unwrap();
    assert_eq!((&machine["publicKey"], &machine["machineId"]), (&key.public_key().into(), &"laptop".into()));
}

#[test]
fn after_a_logout_no_command_signs_in() {
    let user = User::new(None);
    let (running, url) = up(&user, &["--no-runner"]);
    user.succeed(&["login"]);
    let me = id(&user.json(&["whoami"]));
    let token = user.succeed(&["token"]);
    user.succeed(&["logout"]);
    assert!(!fs::read_to_string(user.files().join("tokens.json")).unwrap().contains(token.trim()));
    assert!(user.fail(&["session", "list"]).contains("ensemble login"));
    user.succeed(&["login"]);
    assert_eq!(id(&user.json(&["whoami"])), me);

    user.succeed(&["logout"]);
    assert_eq!(running.interrupt(), 0);
    // In place of the server something that notices a connection.
    let listener = TcpListener::bind(url.trim_start_matches("http://")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let other = format!("http://{}", elsewhere.local_addr().unwrap());
    for arguments in
        [["session", "list"].as_slice(), &["runs"], &["machine", "list"], &["whoami"], &["token"], &["runner"]]
    {
        let error = user.fail(arguments);
        assert!(error.contains("not signed in") && error.contains("Run `ensemble login`"), "{error}");
        let there = user.fail(&[&["--server", &other], arguments].concat());
        assert!(
            there.contains("not signed in") && there.contains(&format!("ensemble --server {other} login")),
            "{there}"
        );
    }
    assert!(listener.accept().is_err() && elsewhere.accept().is_err(), "no command connects");
}

#[test]
fn another_server_gets_no_account_unasked() {
    let (owner, other) = (User::new(None), User::new(None));
    let (_up, url) = up(&owner, &["--no-runner"]);
    let (_other_up, elsewhere) = up(&other, &["--no-runner"]);
    let here = id(&owner.json(&["whoami"]));
    let error = owner.fail(&["--server", &elsewhere, "session", "list"]);
    assert!(
        error.contains("not signed in") && error.contains(&format!("ensemble --server {elsewhere} login")),
        "{error}"
    );

    // Asked, it does. The default stays, and both can be used.
    let printed = owner.succeed(&["--server", &elsewhere, "login"]);
    assert!(printed.contains(&format!("ensemble config server {elsewhere}")), "{printed}");
    let there = id(&owner.json(&["--server", &elsewhere, "whoami"]));
    assert_ne!(there, here);
    assert_eq!(id(&owner.json(&["whoami"])), here);
    owner.succeed(&["config", "server", &elsewhere]);
    assert_eq!(id(&owner.json(&["whoami"])), there);
    assert_eq!(id(&owner.json(&["--server", &url, "whoami"])), here);
}

#[test]
fn the_files_of_an_earlier_version_are_taken_over() {
    let user = User::new(None);
    let (_up, url) = up(&user, &["--no-runner"]);
    let me = id(&user.json(&["whoami"]));
    let settings: Value = serde_json::from_slice(&fs::read(user.files().join("settings.json")).unwrap()).unwrap();
    let token = serde_json::json!({
        "origin": url, "publicKey": settings["accounts"][&url]["publicKey"], "userId": me, "token": "old",
        "expiresAt": "2026-03-26T00:00:00.000Z",
    });
    fs::write(user.files().join("settings.json"), serde_json::json!({ "server": url, "machines": {} }).to_string())
        .unwrap();
    fs::write(user.files().join("token.json"), token.to_string()).unwrap();
    fs::remove_file(user.files().join("tokens.json")).unwrap();
    assert_eq!(id(&user.json(&["whoami"])), me);
    assert!(!user.files().join("token.json").exists());
    assert_eq!(id(&user.json(&["whoami"])), me);
}
