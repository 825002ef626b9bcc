//! The server's data: another directory than the one of before is refused, and going back is going back.

use ensemble_testkit::free_port;
use serde_json::Value;

use crate::ensemble::{Running, User, up_at, wait_for_runner};
use crate::live::turns;
use crate::place::Place;

/// The ids of this user's machines at the server.
fn machines(user: &User) -> Vec<String> {
    let listed = user.json(&["machine", "list"]);
    let all = listed["machines"].as_array().unwrap().iter();
    all.map(|known| known["machine"]["id"].as_str().unwrap().to_owned()).collect()
}

fn start(user: &User, words: &[&str]) -> (Running, Value) {
    up_at(user, &[&["up", "--json"], words].concat())
}

#[test]
fn other_data_is_refused_and_going_back_is_going_back() {
    let place = Place::new();
    let user = &place.user;
    let listen = format!("127.0.0.1:{}", free_port());
    let (first, begun) = start(user, &["--listen", &listen, "--data", "one"]);
    wait_for_runner(user);
    let session = place.start(&["claude", "--model", "claude-sonnet-4-5", "[[say first]]"]);
    turns(user, &session, 1);
    let machine = machines(user);
    assert_eq!(first.interrupt(), 0);

    // Another directory, and the usual one.
    for words in [&["--data", "two"][..], &[]] {
        let refused = user.fail(&[&["up", "--listen", &listen], words].concat());
        let path = user.home().join("one");
        assert!(refused.contains(&format!("ensemble up --data {}`", path.display())), "{refused}");
        assert!(refused.contains("--other-data"), "{refused}");
    }
    assert!(!user.home().join("two").exists() && !user.files().join("data").exists(), "nothing was made");

    let (second, other) = start(user, &["--listen", &listen, "--data", "two", "--other-data"]);
    assert_ne!(other["userId"], begun["userId"]);
    wait_for_runner(user);
    assert!(!user.succeed(&["sessions"]).contains(&session));
    assert_ne!(machines(user), machine, "it is another machine there");
    assert_eq!(second.interrupt(), 0);

    let (third, back) = start(user, &["--listen", &listen, "--data", "one", "--other-data"]);
    assert_eq!(back["userId"], begun["userId"]);
    wait_for_runner(user);
    assert_eq!(machines(user), machine, "no machine was made");
    user.succeed(&["prompt", &session, "[[say second]]"]);
    turns(user, &session, 2);
    assert_eq!(third.interrupt(), 0);

    // The same data at another address is the same account with the same machine.
    let (_fourth, moved) = start(user, &["--listen", "127.0.0.1:0", "--data", "one"]);
    wait_for_runner(user);
    assert_eq!((&moved["userId"], machines(user)), (&begun["userId"], machine));
    user.succeed(&["prompt", &session, "[[say third]]"]);
    turns(user, &session, 3);
}

#[test]
fn data_that_is_gone_is_not_replaced_in_silence() {
    let user = User::new(None);
    let listen = format!("127.0.0.1:{}", free_port());
    let up = ["--listen", &listen, "--no-runner"];
    let (first, _) = start(&user, &up);
    assert_eq!(first.interrupt(), 0);
    let data = user.files().join("data");
    std::fs::rename(&data, user.home().join("moved")).unwrap();
    let refused = user.fail(&["up", "--listen", &listen, "--no-runner"]);
    assert!(refused.contains(data.to_str().unwrap()) && refused.contains("not there any more"), "{refused}");
    let (moved, _) = start(&user, &[&up[..], &["--data", "moved"]].concat());
    assert_eq!(moved.interrupt(), 0);
}

#[test]
fn without_a_chosen_home_data_is_where_the_system_keeps_data() {
    let user = User::new(None);
    let mut command = user.command(&["up", "--listen", "127.0.0.1:0", "--no-runner", "--json"]);
    command.env_remove("ENSEMBLE_HOME");
    let running = Running::of(command);
    assert!(user.home().join(".local/share/ensemble/identity.db").exists());
    assert_eq!(running.interrupt(), 0);
    // What an earlier version has left in its place is used.
    let older = user.home().join(".config/ensemble");
    std::fs::rename(user.home().join(".local/share/ensemble"), older.join("data")).unwrap();
    let mut command = user.command(&["up", "--listen", "127.0.0.1:0", "--no-runner", "--json"]);
    command.env_remove("ENSEMBLE_HOME");
    let _running = Running::of(command);
    assert!(!user.home().join(".local/share/ensemble").exists());
}

#[test]
fn a_server_that_others_reach_has_no_runner_that_takes_what_is_not_signed() {
    let user = User::new(None);
    std::fs::create_dir_all(user.files()).unwrap();
    std::fs::write(user.files().join("runner.yaml"), "accept: any\n").unwrap();
    for words in [&["--listen", "0.0.0.0:0"][..], &["--listen", "127.0.0.1:0", "--public-url", "https://e.example"]] {
        let refused = user.fail(&[&["up"], words].concat());
        assert!(refused.contains("accept: any") && refused.contains("--no-runner"), "{refused}");
    }
    assert!(!user.files().join("data").exists(), "nothing was made");
    let (without, _) = start(&user, &["--listen", "0.0.0.0:0", "--no-runner"]);
    assert_eq!(without.interrupt(), 0);

    // Without a word in the file: on loopback the server is this computer's own, elsewhere only what is signed is taken.
    let place = Place::new();
    let user = &place.user;
    for (listen, ends) in [("127.0.0.1:0", "completed"), ("0.0.0.0:0", "failed")] {
        let (running, printed) = start(user, &["--listen", listen]);
        wait_for_runner(user);
        let server = format!("{}/v1/orchestrator/runs", printed["url"].as_str().unwrap());
        let task = serde_json::json!({
            "provider": "claude", "model": "claude-sonnet-4-5", "prompt": "[[say it]]",
            "workingDirectory": place.file("").canonicalize().unwrap(),
        });
        let answer = std::process::Command::new("curl")
            .args(["-sS", "-X", "POST", &server, "-H", "Content-Type: application/json"])
            .args(["-H", &format!("Authorization: Bearer {}", user.succeed(&["token"]).trim())])
            .args(["-d", &serde_json::json!({"tasks": [task]}).to_string()])
            .output()
            .unwrap();
        assert!(answer.status.success(), "{answer:?}");
        let ended = crate::live::until("the end of the run", || {
            let newest = user.json(&["runs"])["runs"][0]["ref"].as_str()?.to_owned();
            let run = user.json(&["show", &newest]);
            ["completed", "failed"].iter().any(|state| run["status"] == *state).then_some(run)
        });
        assert_eq!(ended["status"], ends, "{ended}");
        if ends == "failed" {
            assert_eq!(ended["tasks"][0]["error"]["code"], "TASK_NOT_SIGNED");
        }
        assert_eq!(running.interrupt(), 0);
    }
}

#[test]
fn doctor_names_a_machine_that_the_server_forgot() {
    let place = Place::new();
    let user = &place.user;
    let (_up, url) = crate::ensemble::up(user, &[]);
    wait_for_runner(user);
    let elsewhere = User::new(Some(&url));
    elsewhere.succeed(&["login", "--key", user.files().join("account.key").to_str().unwrap()]);
    let machine = machines(user).remove(0);
    elsewhere.succeed(&["machine", "delete", &machine, "--yes"]);
    let said = user.run(&["doctor"]).out;
    assert!(said.contains(&format!("was registered as {machine}")) && said.contains("--data DIR"), "{said}");
}
