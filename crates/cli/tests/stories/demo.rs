//! `ensemble demo` in a real terminal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ensemble_testkit::free_port;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::ensemble::{Running, User, up, up_at};
use crate::live::{log, until};
use crate::page::tell_to;
use crate::terminal::Terminal;

/// Longer than the time after which a card takes keys.
const TO_READ: Duration = Duration::from_millis(1_800);

/// Someone without any agent, and the folder of their temporary files.
fn user() -> (User, PathBuf) {
    let user = User::new(None);
    let temporary = user.home().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let variable: &'static str = temporary.to_str().unwrap().to_owned().leak();
    (user.with_variable("TMPDIR", variable).with_variable("PATH", "/usr/bin:/bin"), temporary)
}

/// Types `ensemble demo` and waits for its card. Returns the directory.
fn begin(terminal: &Terminal, temporary: &Path) -> PathBuf {
    terminal.ensemble("", "demo");
    card(terminal);
    let mut found = demos(temporary);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Waits until a card is there and takes keys.
fn card(terminal: &Terminal) {
    let is_there = |lines: &[String]| lines.iter().any(|line| line.contains("  1  Allow once"));
    terminal.until("a card", is_there);
    let seen = Instant::now();
    terminal.until("time to read it", |lines| is_there(lines) && seen.elapsed() > TO_READ);
}

fn demos(temporary: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ensemble-demo-")).collect()
}

fn sum(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("sum.sh")).unwrap()
}

fn sessions(user: &User) -> Vec<Value> {
    user.json(&["session", "list"])["sessions"].as_array().unwrap().clone()
}

#[track_caller]
fn is_gone(user: &User, temporary: &Path) {
    until("that session, directory and file are gone", || {
        let files = std::fs::read_dir(user.files().join("demos")).map_or(0, Iterator::count);
        (demos(temporary).is_empty() && sessions(user).is_empty() && files == 0).then_some(())
    });
}

#[test]
fn a_person_without_an_agent_sees_what_a_session_is() {
    let (user, temporary) = user();
    let terminal = Terminal::open(&user, 110, 50);
    terminal.ensemble("", "demo");
    terminal.sees("ensemble up");
    terminal.line("clear");
    let mut plain = Running::start(&user, &["up", "--listen", "127.0.0.1:0", "--no-open"]);
    let said: Vec<String> =
        std::iter::repeat_with(|| plain.line()).take_while(|line| !line.starts_with("Ctrl-C")).collect();
    assert!(said.concat().contains("ensemble demo`"), "{said:#?}");

    let directory = begin(&terminal, &temporary);
    let wrong = sum(&directory);
    terminal.key("1");
    terminal.sees("prints \"passed: 2 + 3 is 5\".");
    assert!(terminal.lines()[0].trim_start().starts_with("Demo"), "{:#?}", terminal.lines());
    assert!(wrong.contains("$1 - $2") && sum(&directory).contains("$1 + $2"));

    let reference = sessions(&user)[0]["session"]["ref"].as_str().unwrap().to_owned();
    let me = user.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    for command in [&["share", "add", &reference, &me][..], &["share", "link", &reference]] {
        let refused = user.fail(command);
        assert!(refused.contains("is a demo") && refused.contains("shared with no one"), "{refused}");
    }
    assert!(user.fail(&["agent", "demo", "--detach"]).contains("`ensemble demo`"));
    // Neither is an agent that is not there, nor one that is not started.
    let missing = user.fail(&["qwen", "--detach"]);
    assert!(missing.contains("no agent qwen on this computer: `npm install -g @qwen-code/qwen-code`"), "{missing}");
    assert!(user.fail(&["agy", "--detach"]).contains("its terms allow"));
    assert!(user.fail(&["agent", "mine", "--detach"]).contains("no agent mine on this computer"));
    let machines = user.json(&["machine", "list"]);
    let machine = &machines["machines"][0];
    assert!(!machine["machine"].to_string().contains("demo"), "{machines}");
    assert_eq!(machine["can"]["does"], serde_json::json!(["demo"]), "{machines}");

    terminal.key("C-d");
    terminal.sees("The demo has ended. Its session and its directory are deleted.");
    terminal.is_given_back();
    is_gone(&user, &temporary);
    assert!(user.fail(&["demo", "--json"]).contains("needs a terminal"));
}

#[test]
fn what_is_refused_does_not_happen_and_a_demo_that_was_killed_is_cleaned_up() {
    let (user, temporary) = user();
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["up", "--listen", &listen, "--json"];
    let (server, _) = up_at(&user, &arguments);
    let terminal = Terminal::open(&user, 110, 50);
    let first = begin(&terminal, &temporary);
    terminal.key("2");
    terminal.sees("nothing has changed");
    assert!(sum(&first).contains("$1 - $2"));

    // Another device can answer as well.
    terminal.line("again");
    card(&terminal);
    let reference = sessions(&user)[0]["session"]["ref"].as_str().unwrap().to_owned();
    let asked = log(&user, &reference).into_iter().rfind(|body| body["type"] == "permission").unwrap();
    user.succeed(&["answer", &reference, "allow", "--request", asked["requestId"].as_str().unwrap()]);
    terminal.sees("passed: 2 + 3 is 5");

    kill(Pid::from_raw(terminal.program()), Signal::SIGKILL).unwrap();
    let other = Terminal::open(&user, 110, 50);
    other.ensemble("", "demo");
    card(&other);
    until("that only the new one is there", || {
        (demos(&temporary).len() == 1 && sessions(&user).len() == 1).then_some(())
    });
    assert!(!first.exists());

    kill(Pid::from_raw(other.program()), Signal::SIGKILL).unwrap();
    assert_eq!(server.interrupt(), 0);
    assert_eq!(demos(&temporary).len(), 1);
    let _server = up_at(&user, &arguments);
    is_gone(&user, &temporary);

    // A terminal that is closed is one that is left.
    let closed = Terminal::open(&user, 110, 50);
    begin(&closed, &temporary);
    kill(Pid::from_raw(closed.program()), Signal::SIGHUP).unwrap();
    is_gone(&user, &temporary);
}

#[test]
fn the_page_offers_it_where_no_agent_is() {
    let (user, temporary) = user();
    let (_up, url) = up(&user, &["--no-open"]);
    tell_to(&user, "demo", &url, &[]);
    is_gone(&user, &temporary);
}
