//! An account on several computers: linked with a code and six digits, removed again, and brought back with words.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ensemble::{User, up};

/// A command that asks and is answered. What it says goes to standard error, or to the terminal of `script`.
struct Dialog {
    child: Child,
    said: std::sync::mpsc::Receiver<u8>,
    text: String,
}

const SOON: Duration = Duration::from_secs(60);

impl Dialog {
    fn start(user: &User, arguments: &[&str]) -> Self {
        let mut child = user.command(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let said = child.stderr.take().unwrap();
        Self::of(child, said)
    }

    /// In a terminal.
    fn in_terminal(user: &User, arguments: &[&str]) -> Self {
        let typed = format!("{} {}", env!("CARGO_BIN_EXE_ensemble"), arguments.join(" "));
        let mut command = Command::new("script");
        command.args(["-qefc", &typed, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("HOME", user.home()).env("ENSEMBLE_HOME", user.files());
        let mut child = command.spawn().unwrap();
        let said = child.stdout.take().unwrap();
        Self::of(child, said)
    }

    fn of(child: Child, mut from: impl Read + Send + 'static) -> Self {
        let (sender, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(from.read(&mut byte), Ok(1)) && sender.send(byte[0]).is_ok() {}
        });
        Self { child, said, text: String::new() }
    }

    /// What was said until this, with it.
    fn until(&mut self, text: &str) -> String {
        let begun = Instant::now();
        let mut bytes = Vec::new();
        loop {
            let left = SOON.saturating_sub(begun.elapsed());
            let byte = self.said.recv_timeout(left);
            bytes.push(byte.unwrap_or_else(|_| panic!("not said: {text}\n{}", String::from_utf8_lossy(&bytes))));
            if bytes.ends_with(text.as_bytes()) {
                let said = String::from_utf8_lossy(&bytes).into_owned();
                self.text.push_str(&said);
                return said;
            }
        }
    }

    fn answer(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The exit code, and the rest of what it said.
    fn end(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        while let Ok(byte) = self.said.recv_timeout(SOON) {
            rest.push(byte);
        }
        (self.child.wait().unwrap().code().unwrap_or(-1), String::from_utf8_lossy(&rest).into_owned())
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `ensemble link` and the address that it shows.
fn link(user: &User, more: &[&str]) -> (Dialog, String) {
    let mut dialog = Dialog::start(user, &[&["link"], more].concat());
    dialog.until("/link#v1.");
    dialog.until("\n");
    let address = dialog.text.lines().find(|line| line.contains("/link#v1.")).unwrap().to_owned();
    (dialog, address)
}

/// `ensemble login --link` on another computer, and the digits that it shows.
fn join(user: &User, address: &str) -> (Dialog, String) {
    let mut dialog = Dialog::start(user, &["login", "--link"]);
    dialog.answer(address);
    dialog.until("other device: ");
    let digits = dialog.until("\n").trim().to_owned();
    (dialog, digits)
}

fn add(owner: &User, new: &User, more: &[&str]) {
    let (mut first, address) = link(owner, more);
    let (second, digits) = join(new, &address);
    first.until("new device shows: ");
    first.answer(&digits);
    let (code, said) = first.end();
    assert_eq!(code, 0, "{said}");
    let (code, said) = second.end();
    assert_eq!(code, 0, "{said}");
}

fn texts(user: &User, session: &str) -> Vec<Value> {
    user.json_lines(&["session", "read", session]).iter().map(|line| line["body"]["text"].clone()).collect()
}

#[test]
fn a_second_computer_is_linked_works_and_is_removed() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["ref"].as_str().unwrap().to_owned();
    owner.succeed(&["session", "send", &session, "one"]);
    add(&owner, &second, &[]);

    assert_eq!(owner.json(&["whoami"])["id"], second.json(&["whoami"])["id"]);
    let said = second.succeed(&["whoami"]);
    assert!(said.contains("primary") && said.contains("version 2"), "{said}");
    assert!(second.succeed(&["session", "list"]).contains("Plans"));
    second.succeed(&["session", "send", &session, "two"]);
    assert_eq!(texts(&owner, &session), ["one", "two"]);
    assert_eq!(texts(&second, &session), ["one", "two"]);
    let devices = owner.json(&["devices"])["devices"].as_array().unwrap().clone();
    assert_eq!(devices.iter().filter(|device| device["current"] == true).count(), 1, "{devices:?}");
    let other = devices.iter().find(|device| device["current"] == false).unwrap()["publicKey"].as_str().unwrap();

    let epoch = owner.json(&["session", "show", &session])["session"]["keyEpoch"].as_i64().unwrap();
    let removed = owner.json(&["devices", "remove", other, "--yes"]);
    assert_eq!(removed["rekeyed"], 1, "{removed}");
    assert_eq!(owner.json(&["session", "show", &session])["session"]["keyEpoch"].as_i64().unwrap(), epoch + 1);
    let begun = Instant::now();
    let refused = loop {
        let ended = second.run(&["session", "read", &session]);
        if ended.code != 0 {
            break ended.err;
        }
        assert!(begun.elapsed() < SOON, "a removed device still reads");
    };
    assert!(refused.contains("removed from its account"), "{refused}");
    assert!(second.fail(&["login"]).contains("removed from its account"));
    owner.succeed(&["session", "send", &session, "three"]);
    assert_eq!(texts(&owner, &session), ["one", "two", "three"]);
    // A removal that was killed before its sessions had new keys goes on with the next command.
    let file = owner.files().join("settings.json");
    let mut settings: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(settings["unfinishedRemovals"], serde_json::json!({}));
    let server = owner.json(&["config"])["server"].as_str().unwrap().to_owned();
    // The list that was to remove a device was never taken: nothing is to be done.
    settings["unfinishedRemovals"] = serde_json::json!({ server.as_str(): 99 });
    std::fs::write(&file, settings.to_string()).unwrap();
    assert!(!owner.run(&["session", "list"]).err.contains("Finishing the removal"));
    settings["unfinishedRemovals"] = serde_json::json!({ server.as_str(): 3 });
    std::fs::write(&file, settings.to_string()).unwrap();
    assert!(owner.run(&["session", "list"]).err.contains("Finishing the removal"));
    assert!(!owner.run(&["session", "list"]).err.contains("Finishing the removal"));
    // Its key never makes an account again, and it can be linked as a new device.
    std::fs::rename(second.files(), second.home().join("before")).unwrap();
    add(&owner, &second, &["--role", "linked"]);
    assert_eq!(texts(&second, &session), ["one", "two", "three"]);
    assert!(second.fail(&["link"]).contains("only a primary one"));
    let own: String = owner.json(&["devices"])["devices"][0]["publicKey"].as_str().unwrap().to_owned();
    assert!(second.fail(&["devices", "remove", &own, "--yes"]).contains("only a primary one"));
    assert!(owner.fail(&["devices", "remove", "nothing", "--yes"]).contains("You have no device nothing"));
}

#[test]
fn a_code_without_its_digits_adds_nothing() {
    let (owner, second, third) = (User::new(None), User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let (mut first, address) = link(&owner, &[]);
    let (waiting, digits) = join(&second, &address);
    // Somebody who has photographed the code comes too late.
    let late = third.run_with_input(&["login", "--link"], &format!("{address}\n"));
    assert!(late.code == 1 && late.err.contains("used already"), "{}", late.err);
    let wrong = if digits == "000 000" { "111111" } else { "000000" };
    for _ in 0..3 {
        first.until("new device shows: ");
        first.answer(wrong);
    }
    let (code, said) = first.end();
    assert!(code == 1 && said.contains("Nothing was added"), "{said}");
    let (code, said) = waiting.end();
    assert!(code == 1 && said.contains("refused this one"), "{said}");
    assert!(!second.files().join("account.key").exists(), "nothing was kept");
    assert_eq!(owner.json(&["devices"])["devices"].as_array().unwrap().len(), 1);
    for bad in ["http://127.0.0.1:9/link#v1.a.b", "nonsense", ""] {
        let ended = second.run_with_input(&["login", "--link"], &format!("{bad}\n"));
        assert!(ended.code == 1 && ended.err.contains("not the address"), "{bad}: {}", ended.err);
    }
}

#[test]
fn words_on_paper_bring_the_account_back() {
    let (owner, new) = (User::new(None), User::new(None));
    let (_up, url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["session", "create", "--title", "Kept"]);
    assert!(owner.fail(&["recovery"]).contains("in a terminal only"));
    let mut dialog = Dialog::in_terminal(&owner, &["recovery"]);
    let shown = dialog.until("nobody can help you.");
    let mut words = vec![String::new(); 24];
    let cells: Vec<&str> = shown.lines().filter(|line| line.contains(". ")).flat_map(str::split_whitespace).collect();
    for pair in cells.windows(2) {
        if let Some(at) = pair[0].strip_suffix('.').and_then(|at| at.parse::<usize>().ok()) {
            words[at - 1] = pair[1].to_owned();
        }
    }
    for _ in 0..3 {
        dialog.until("Type word ");
        let at: usize = dialog.until(": ").trim_end_matches(": ").parse().unwrap();
        dialog.answer(&words[at - 1]);
    }
    dialog.until("can be recovered");
    let (code, said) = dialog.end();
    assert_eq!(code, 0, "{said}");

    let mut wrong = words.clone();
    wrong[3] = "nonsense".to_owned();
    let recover =
        |typed: &[String]| new.run_with_input(&["login", "--recover", "--server", &url], &(typed.join(" ") + "\n"));
    let ended = recover(&wrong);
    assert!(ended.code == 1 && ended.err.contains("word 4 is not in the list"), "{}", ended.err);
    let ended = recover(&words);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert_eq!(new.json(&["whoami"])["id"], owner.json(&["whoami"])["id"]);
    assert!(new.succeed(&["session", "list"]).contains("Kept"));
    let roles: Vec<Value> =
        new.json(&["devices"])["devices"].as_array().unwrap().iter().map(|device| device["role"].clone()).collect();
    assert!(
        roles.contains(&"recovery".into()) && roles.iter().filter(|role| *role == "primary").count() == 2,
        "{roles:?}"
    );
}
