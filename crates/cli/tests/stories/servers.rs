//! Which server commands use, at which addresses a server is reached, and what is seen of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::ensemble::{Running, User, up, up_at, wait_for_runner};

#[test]
fn up_does_not_take_over_the_default_server() {
    let (owner, user) = (User::new(None), User::new(None));
    let (_team, team) = up(&owner, &["--no-runner"]);
    user.succeed(&["--server", &team, "login"]);
    let me = user.json(&["whoami"]);

    let (running, printed) = up_at(&user, &["up", "--no-runner", "--listen", "127.0.0.1:0", "--json"]);
    assert_eq!(printed["defaultServer"], team.as_str());
    assert_eq!(user.json(&["whoami"]), me);
    // The other one works at once as well, with its address.
    let url = printed["url"].as_str().unwrap();
    let own = user.json(&["--server", url, "whoami"]);
    assert_eq!(own["id"], printed["userId"]);
    assert_ne!(own["id"], me["id"]);
    user.succeed(&["--server", url, "login"]);
    assert_eq!(running.interrupt(), 0);
    assert_eq!(user.json(&["whoami"]), me);

    let mut running = Running::start(&user, &["up", "--no-runner", "--listen", "127.0.0.1:0"]);
    let mut banner = String::new();
    while !banner.contains("Ctrl-C") {
        let line = running.line();
        assert!(!line.is_empty(), "{banner}");
        banner.push_str(&line);
    }
    assert!(
        banner.contains("ensemble --server http://127.0.0.1:") && banner.contains("ensemble config server"),
        "{banner}"
    );
}

#[test]
fn the_first_server_on_this_machine_stays_in_use_while_it_is_up() {
    let user = User::new(None);
    let (first, url) = up(&user, &["--no-runner"]);
    let me = user.json(&["whoami"]);
    let data = user.home().join("other");
    let more = ["up", "--no-runner", "--json", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let (second, printed) = up_at(&user, &more);
    assert_eq!(printed["defaultServer"], url.as_str());
    assert_eq!(user.json(&["whoami"]), me);
    assert_eq!(second.interrupt(), 0);
    assert_eq!(first.interrupt(), 0);
    // With no server up, the next one is used.
    let (_third, printed) = up_at(&user, &more);
    assert_eq!(printed["defaultServer"], printed["url"]);
    assert_eq!(user.json(&["whoami"])["id"], printed["userId"]);
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let user = User::new(None);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = user.home().join("runner.yaml");
    fs::write(&config, "no-such-setting: 1").unwrap();
    for arguments in [
        ["--root", "/nope"].as_slice(),
        &["--listen", &address],
        &["--public-url", "example.com"],
        &["--config", config.to_str().unwrap()],
    ] {
        user.fail(&[&["up"], arguments].concat());
        assert!(!user.files().exists(), "{arguments:?}");
    }
}

#[test]
fn a_sign_in_at_another_address_names_the_addresses_of_the_server() {
    let owner = User::new(None).with_variable("REGISTRATION", "open");
    let friend = User::new(None);
    let public = "https://ensemble.example.com";
    let (_up, printed) =
        up_at(&owner, &["up", "--no-runner", "--json", "--listen", "0.0.0.0:0", "--public-url", public]);
    assert_eq!(printed["forOthers"], serde_json::json!([public]));
    let own = printed["url"].as_str().unwrap();
    // All of 127.0.0.0/8 is this machine, and only 127.0.0.1 is an address that the server knows.
    let other = own.replace("127.0.0.1", "127.0.0.2");
    let error = friend.fail(&["--server", &other, "login"]);
    assert!(error.contains(public) && error.contains(own), "{error}");
    assert!(error.contains(&format!("--public-url {other}")) && error.contains("PUBLIC_BASE_URL"), "{error}");
    assert!(!friend.files().join("account.key").exists());
    friend.succeed(&["--server", own, "login"]);
}

#[test]
fn the_address_of_a_page_names_the_one_of_the_server() {
    let (owner, friend) = (User::new(None), User::new(None));
    let (_up, url) = up(&owner, &["--no-runner"]);
    let page = format!("{url}/docs");
    let error = friend.fail(&["--server", &page, "login"]);
    assert!(
        error.contains(&format!("There is no Ensemble at {page}")) && error.contains(&format!("--server {url}")),
        "{error}"
    );
    friend.succeed(&["--server", &format!("{url}/"), "login"]);
    // A failure of another kind stays as it is.
    assert!(friend.fail(&["--server", &url, "session", "show", "aaaaaaaa"]).contains("Nothing with this id or ref"));
}

#[test]
fn a_server_on_both_families_takes_sign_ins_on_both() {
    let owner = User::new(None).with_variable("REGISTRATION", "open");
    let friend = User::new(None);
    let (_up, printed) = up_at(&owner, &["up", "--no-runner", "--json", "--listen", "[::]:0"]);
    let url = printed["url"].as_str().unwrap();
    for address in [url.to_owned(), url.replace("127.0.0.1", "[::1]"), url.replace("127.0.0.1", "localhost")] {
        friend.succeed(&["--server", &address, "login"]);
    }
}

#[test]
fn a_terminal_that_is_closed_ends_a_server_as_a_signal_does() {
    let hang_up = |pid: u32| {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    };
    let owner = User::new(None);
    let started_by = |program: &str, arguments: &[&str]| {
        let up = owner.command(&["up", "--no-runner", "--json", "--listen", "127.0.0.1:0"]);
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(up.get_program()).args(up.get_args()).current_dir(owner.home());
        for (name, value) in up.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        Running::of(command)
    };
    // The tests themselves may have been started to outlive their terminal.
    let running = started_by("env", &["--default-signal=HUP"]);
    hang_up(running.pid());
    assert_eq!(running.ended(), 0, "it has drained");

    // One that was started to outlive its terminal does.
    let running = started_by("nohup", &[]);
    hang_up(running.pid());
    owner.succeed(&["status"]);
    assert_eq!(running.interrupt(), 0);
}

#[test]
fn a_server_for_others_is_reached_at_the_addresses_of_its_machine() {
    let owner = User::new(None).with_variable("REGISTRATION", "open");
    let friend = User::new(None);
    let (running, printed) = up_at(&owner, &["up", "--no-runner", "--json", "--listen", "0.0.0.0:0"]);
    // A machine without a network has none.
    for address in printed["forOthers"].as_array().unwrap() {
        let address = address.as_str().unwrap();
        assert!(!address.contains("127.0.0.1"), "{address}");
        friend.succeed(&["--server", address, "login"]);
    }
    drop(running);
    let mut running = Running::start(&owner, &["up", "--no-runner", "--listen", "0.0.0.0:0"]);
    let mut banner = String::new();
    while !banner.contains("Ctrl-C") {
        let line = running.line();
        assert!(!line.is_empty(), "{banner}");
        banner.push_str(&line);
    }
    let is_reachable = printed["forOthers"].as_array().is_some_and(|addresses| !addresses.is_empty());
    assert_eq!(banner.contains("plain HTTP"), is_reachable, "{banner}");
}

#[test]
fn tls_to_a_plain_port_is_named() {
    let user = User::new(None);
    let (_up, url) = up(&user, &["--no-runner"]);
    let error = user.fail(&["--server", &url.replace("http:", "https:"), "login"]);
    assert!(error.contains("does not speak TLS") && !error.contains("ensemble up"), "{error}");
}

/// Sends a request with a token, and returns the status line and what follows.
fn get(url: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_token_is_printed_for_other_programs() {
    let user = User::new(None);
    let (_up, url) = up(&user, &[]);
    let me = user.json(&["whoami"]);
    let token = user.succeed(&["token"]);
    let answer = get(&url, "/v1/account", token.trim());
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(me["id"].as_str().unwrap()), "{answer}");
    assert_eq!(user.json(&["token"])["userId"], me["id"]);

    let listed = user.json(&["machine", "list"])["machines"][0]["machine"].clone();
    let (machine, reference) = (listed["id"].as_str().unwrap(), listed["ref"].as_str().unwrap());
    let made = user.json(&["token", "--machine", reference, "--expires", "1h"]);
    let answer = get(&url, &format!("/v1/machines/{machine}"), made["token"].as_str().unwrap());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let host = user.json(&["machine", "list"])["machines"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(user.json(&["token", "--machine", &host])["machineId"], made["machineId"]);
    assert!(user.fail(&["token", "--machine", "nowhere"]).contains("no machine nowhere"));
    assert_eq!(user.run(&["token", "--expires", "1h"]).code, 2, "a user's token has its own lifetime");
}

#[test]
fn the_status_fits_one_screen() {
    let user = User::new(None);
    assert_eq!(user.run(&["--server", "http://127.0.0.1:9", "status"]).code, 1);
    let (_up, url) = up(&user, &[]);
    user.succeed(&["login", "--name", "A name"]);
    wait_for_runner(&user);
    let status = user.json(&["status"]);
    assert_eq!((&status["server"]["url"], &status["server"]["reachable"]), (&Value::from(url), &true.into()));
    assert_eq!((&status["account"]["displayName"], &status["account"]["signedIn"]), (&"A name".into(), &true.into()));
    assert_eq!(status["runs"], serde_json::json!([]));
    let shown = user.succeed(&["status"]);
    for part in ["server ", "account      A name, ", "fingerprint ", "runner online", "none unfinished"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(shown.lines().count() < 20);
    user.succeed(&["logout"]);
    let ended = user.run(&["status"]);
    assert!(ended.code == 1 && ended.out.contains("not signed in"), "{}", ended.out);
}

#[test]
fn a_second_runner_names_the_first_one() {
    let user = User::new(None);
    let (running, _url) = up(&user, &[]);
    wait_for_runner(&user);
    let error = user.fail(&["runner"]);
    assert!(error.contains(&format!("another runner (process {})", running.pid())), "{error}");
}

#[test]
fn a_server_that_listens_elsewhere_has_no_second_machine() {
    let user = User::new(None);
    let machines = || {
        let (up, _url) = up(&user, &[]);
        wait_for_runner(&user);
        let listed = user.json(&["machine", "list"])["machines"].as_array().unwrap().len();
        assert_eq!(up.interrupt(), 0);
        listed
    };
    assert_eq!([machines(), machines()], [1, 1]);
}

#[test]
fn the_banner_recommends_what_works_here() {
    let user = User::new(None);
    std::fs::create_dir_all(user.files()).unwrap();
    let none = "providers: {claude: {enabled: false}, codex: {enabled: false}, gemini: {enabled: false}}\n";
    std::fs::write(user.files().join("runner.yaml"), none).unwrap();
    for (more, says) in [(None, "doctor` says what is missing"), (Some("--no-runner"), "runner` lets agents work")] {
        let mut arguments = vec!["up", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        let mut running = Running::start(&user, &arguments);
        let mut banner = String::new();
        while !banner.contains("Ctrl-C") {
            let line = running.line();
            assert!(!line.is_empty(), "{banner}");
            banner.push_str(&line);
        }
        assert!(banner.contains(&format!("`ensemble {says}")) && !banner.contains("in your project"), "{banner}");
        assert_eq!(running.interrupt(), 0);
    }
}
