//! Without a server: help, mistakes, and the sentences that say what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::ensemble::Person;

/// Nothing listens on the discard port of this machine.
const NOBODY: &str = "http://127.0.0.1:9";

#[test]
fn help_names_every_command_and_completions_know_them() {
    let person = Person::new(None);
    let help = person.says(&["--help"]);
    let commands = [
        "up",
        "login",
        "logout",
        "whoami",
        "machine",
        "runner",
        "run",
        "runs",
        "show",
        "output",
        "cancel",
        "retry",
        "session",
        "share",
        "completions",
    ];
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
        assert_eq!(person.types(&[command, "--help"]).code, 0, "{command}");
    }
    assert!(!person.says(&["runner", "--help"]).contains("guard"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(person.says(&["completions", shell]).contains("whoami"), "{shell}");
    }
    assert_eq!(person.types(&["dance"]).code, 2);
    assert_eq!(person.types(&[]).code, 2);
}

#[test]
fn who_is_not_signed_in_is_told_how() {
    let person = Person::new(Some(NOBODY));
    for words in [["whoami", "--json"].as_slice(), &["runs"], &["session", "list"], &["machine", "list"]] {
        let ended = person.types(words);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("ensemble login"), "{}", ended.err);
        assert!(ended.out.is_empty());
    }
}

#[test]
fn an_absent_server_is_named_and_leaves_no_key_behind() {
    let person = Person::new(Some(NOBODY));
    let ended = person.types(&["login"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains(NOBODY) && ended.err.contains("ensemble up"), "{}", ended.err);
    assert!(!person.home().join("ensemble/account.key").exists());
    let ended = person.types(&["login", "--server", "example.com"]);
    assert!(ended.err.contains("http://"), "{}", ended.err);
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let person = Person::new(Some(NOBODY));
    let home = person.home().join("ensemble");
    fs::create_dir_all(&home).unwrap();
    let key = home.join("account.key");
    fs::write(&key, "ensemble-account-key-v1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = person.types(&["whoami"]);
    assert!(ended.err.contains("chmod 600"), "{}", ended.err);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(person.types(&["whoami"]).err.contains("Nothing answers"));
    fs::write(&key, "something else").unwrap();
    assert!(person.types(&["whoami"]).err.contains("not an account key"));
}

#[test]
fn mistakes_in_a_plan_are_named_before_anything_is_sent() {
    let person = Person::new(Some(NOBODY));
    let plan = "tasks: [{prompt: x, provider: codex, dependson: [a]}]";
    let ended = person.types_with(&["run", "-"], plan);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("dependson"), "{}", ended.err);
    assert!(person.types(&["run", "missing.yaml"]).err.contains("missing.yaml"));
}

#[test]
fn the_example_is_a_plan() {
    let person = Person::new(Some(NOBODY));
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/review.yaml");
    // Good as far as can be told without a server.
    assert!(person.types(&["run", example]).err.contains("ensemble login"));
}

#[test]
fn a_check_says_which_providers_there_are() {
    let person = Person::new(None);
    let told = person.types(&["runner", "check", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let providers: Vec<_> = told["providers"].as_array().unwrap().iter().map(|one| one["provider"].clone()).collect();
    assert_eq!(providers, ["claude", "codex", "gemini"]);
}

#[cfg(feature = "up")]
#[test]
fn logs_are_for_programs_where_programs_read_them() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let person = Person::new(None);
    let mut up = person
        .command(&["up", "--listen", "127.0.0.1:0", "--no-runner"])
        .env("LOG_FORMAT", "json")
        .env("RUST_LOG", "info")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(up.stderr.take().unwrap()).read_line(&mut line).unwrap();
    up.kill().unwrap();
    up.wait().unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(told["message"].is_string() && told["level"].is_string(), "{told}");
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_there_is_an_account() {
    let person = Person::new(Some(NOBODY));
    let ended = person.command(&["login"]).env("ENSEMBLE_HOME", "/proc/nowhere").output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(told.contains("/proc/nowhere") && told.contains("ENSEMBLE_HOME") && !told.contains(NOBODY), "{told}");
}
