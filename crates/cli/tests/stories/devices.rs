//! An account on several computers: linked with a code and six digits, removed again, and brought back with words.

use serde_json::Value;

use crate::ensemble::{User, up};
use crate::killed::shared;
use crate::linking::{Dialog, add, join, link};
use crate::live::until;
use crate::lying::LyingServer;

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
    let print = |user: &User, command: &str| user.json(&[command])["fingerprint"].clone();
    assert_eq!(print(&owner, "whoami"), print(&second, "whoami"), "of the account");
    let status = |user: &User| user.json(&["status"])["account"]["fingerprint"].clone();
    assert_eq!((status(&owner), status(&second)), (print(&owner, "whoami"), print(&owner, "whoami")));
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
    let refused = until("a removed device reads nothing", || {
        let ended = second.run(&["session", "read", &session]);
        (ended.code != 0).then_some(ended.err)
    });
    assert!(refused.contains("removed from its account"), "{refused}");
    assert!(second.fail(&["login"]).contains("removed from its account"));
    owner.succeed(&["session", "send", &session, "three"]);
    assert_eq!(texts(&owner, &session), ["one", "two", "three"]);
    // A removal that was killed before its sessions had new keys continues with the next command.
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
fn a_removal_continues_with_only_the_sessions_that_it_could_not_look_at() {
    let server = LyingServer::start();
    let (owner, _friend, session) = shared(&server);
    let other = owner.json(&["session", "create", "--title", "Other"])["session"]["id"].as_str().unwrap().to_owned();
    let second = User::new(None);
    add(&owner, &second, &[]);
    let removed = second.json(&["whoami"])["device"]["publicKey"].as_str().unwrap().to_owned();
    let epoch = |of: &str| owner.json(&["session", "show", of])["session"]["keyEpoch"].as_i64().unwrap();
    let before = [epoch(&session), epoch(&other)];
    let settings = |member: &str| {
        let settings = std::fs::read(owner.files().join("settings.json")).unwrap();
        serde_json::from_slice::<Value>(&settings).unwrap()[member].clone()
    };
    // What this computer remembers of the session cannot be read.
    let servers = std::fs::read_dir(owner.files().join("sessions")).unwrap();
    let [folder] = &*servers.map(|entry| entry.unwrap().path()).collect::<Vec<_>>() else { panic!("one server") };
    let file = folder.join(format!("{session}.json"));
    let record = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();

    let failed = owner.fail(&["devices", "remove", &removed, "--yes"]);
    assert!(failed.contains("is damaged"), "{failed}");
    let is_unfinished = || settings("unfinishedRemovals")[&server.url].is_u64();
    let left = settings("leftOfRemovals")[&server.url]["sessions"].clone();
    assert!(is_unfinished() && left == serde_json::json!([session]), "{left}");
    let next = |of: &str| {
        server.lie(|_, _| {});
        let next = owner.run(&["whoami"]);
        assert!(next.code == 0 && next.err.contains(of), "{}", next.err);
        server.requests().into_iter().filter(|line| line.contains("/v1/sessions")).collect::<Vec<_>>()
    };
    assert_eq!(
        next("It could not be finished"),
        [format!("GET /v1/sessions/{session}")],
        "only whether it still exists"
    );
    assert!(is_unfinished());

    std::fs::write(&file, record).unwrap();
    let requests = next("Finishing the removal");
    assert!(requests.contains(&format!("PATCH /v1/sessions/{session}")), "{requests:?}");
    assert!(!requests.iter().any(|line| line.contains(&other)), "{requests:?}");
    assert_eq!([epoch(&session), epoch(&other)], before.map(|epoch| epoch + 1));
    assert_eq!([settings("unfinishedRemovals"), settings("leftOfRemovals")], [(); 2].map(|()| serde_json::json!({})));
}

#[test]
fn a_code_without_its_digits_adds_nothing() {
    let (owner, second, third) = (User::new(None), User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    let (mut first, address) = link(&owner, &[]);
    let (waiting, digits) = join(&second, &address);
    // A person who has photographed the code comes too late.
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
    assert!(second.run_with_input(&["login", "--link"], "\n").err.contains("No address was typed"));
    for bad in ["http://127.0.0.1:9/link#v1.a.b", "nonsense"] {
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
    let shown = dialog.until("no one can help you.");
    let mut words = vec![String::new(); 24];
    let cells: Vec<&str> = shown.lines().filter(|line| line.contains(". ")).flat_map(str::split_whitespace).collect();
    for pair in cells.windows(2) {
        if let Some(at) = pair[0].strip_suffix('.').and_then(|at| at.parse::<usize>().ok()) {
            words[at - 1] = pair[1].to_owned();
        }
    }
    for number in 0..3 {
        dialog.until("Type word ");
        let at: usize = dialog.until(": ").trim_end_matches(": ").parse().unwrap();
        if number == 0 {
            dialog.answer("mistyped");
            dialog.until(&format!("That is not word {at}, and it is no recovery word."));
            dialog.until(": ");
        }
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
    assert!(ended.code == 1 && ended.err.contains("Word 4 is not in the list"), "{}", ended.err);
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
