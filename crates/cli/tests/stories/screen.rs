//! `ensemble attach` in a real terminal, with the real claude.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ensemble::up;
use crate::live::{assert_whole, log, turns, until};
use crate::place::Place;
use crate::terminal::Terminal;

/// Longer than the time after which a card takes keys.
const TO_READ: Duration = Duration::from_millis(1_800);

fn has(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

#[test]
fn a_person_works_in_a_terminal_and_gets_it_back() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let session = place.start(&["claude", "--title", "Kettle", "[[say It boils.]]"]);
    turns(user, &session, 1);
    let terminal = Terminal::open(user, 100, 30);
    terminal.ensemble("", &format!("attach {session}"));
    let lines = terminal.sees("It boils.");
    assert!(lines[0].trim_start().starts_with("Kettle"), "{lines:#?}");
    assert!(terminal.is_taken().0 && terminal.has_colours());

    // The text is there before it is whole.
    terminal.line("[[split]] [[hang]]");
    terminal.until("a text that grows", |lines| has(lines, "I begin") && has(lines, "working"));
    assert_eq!(texts(&log(user, &session)), ["It boils."], "its message comes at the end");
    terminal.key("Escape");
    terminal.until("the end of the turn", |lines| has(lines, "I begin") && !has(lines, "working"));
    assert_eq!(texts(&turns(user, &session, 2)), ["It boils.", "I begin"]);

    terminal.line("[[run touch allowed]]");
    let lines = terminal.until("a card", |lines| has(lines, "  1  Allow once") && has(lines, "waits for an answer"));
    assert!(has(&lines, "─ permission ─") && has(&lines, "command: touch allowed"), "{lines:#?}");
    assert!(!place.file("allowed").exists());
    until("the title of the terminal", || (terminal.title() == "◆ Kettle asks").then_some(()));
    // A key that is pressed as the card appears was meant for something else, and does not count.
    let seen = Instant::now();
    terminal.until("time to read it", |lines| has(lines, "  1  Allow once") && seen.elapsed() > TO_READ);
    terminal.key("1");
    until("what was allowed", || place.file("allowed").exists().then_some(()));
    turns(user, &session, 3);
    until("the title without a request", || (terminal.title() == "Kettle").then_some(()));

    terminal.resize(60, 20);
    let lines = terminal.until("a narrow screen", |lines| {
        lines.len() == 20
            && lines.iter().all(|line| line.chars().count() <= 60)
            && lines[0].trim_start().starts_with("Kettle")
    });
    assert!(has(&lines, "touch allowed"), "{lines:#?}");
    terminal.key("?");
    terminal.until("the keys", |lines| {
        lines.iter().any(|line| line.contains("ctrl-d") && line.contains("leave; the session continues"))
    });
    terminal.key("Escape");
    terminal.until("the keys are gone", |lines| !has(lines, "leave; the session continues"));
    terminal.key("C-d");
    terminal.sees("continues.");
    terminal.is_given_back();

    // A program that is ended in the middle of a card gives the terminal back, too. With KILL nothing can: the kernel ends the
    // process before a line of it runs, and the person types `reset`.
    terminal.ensemble("NO_COLOR=1", &format!("attach {session}"));
    terminal.sees("Kettle");
    terminal.line("[[run touch refused]]");
    terminal.until("a card", |lines| has(lines, "  1  Allow once") && has(lines, "command: touch refused"));
    assert!(terminal.is_taken().0 && !terminal.has_colours(), "{:#?}", terminal.lines());
    kill(Pid::from_raw(terminal.program()), Signal::SIGTERM).unwrap();
    terminal.is_given_back();
    let log = log(user, &session);
    assert!(
        !place.file("refused").exists()
            && log.iter().all(|body| body["type"] != "answer" || body["optionId"] == "allow")
    );
    assert_whole(&log);
}

#[test]
fn what_was_being_written_outlives_the_program() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let session = place.start(&["claude", "[[say It **boils**.]]"]);
    turns(user, &session, 1);
    let printed = Terminal::open(user, 100, 30);
    printed.ensemble("", &format!("log {session}"));
    printed.sees("It boils.");
    assert!(user.succeed(&["log", &session]).contains("It **boils**."), "a pipe has the text as it is");
    let attached = || {
        let terminal = Terminal::open(user, 100, 30);
        terminal.ensemble("", &format!("attach {session}"));
        terminal.sees("It boils.");
        terminal
    };
    let kept = || std::fs::read_dir(user.files().join("drafts")).into_iter().flatten().flatten().next();
    let terminal = attached();
    terminal.types("half written");
    terminal.sees("half written");
    let file = until("a draft", || {
        let path = kept()?.path();
        let is_whole = std::fs::read_to_string(&path).is_ok_and(|text| text == "half written");
        // A new file has another name until it is whole.
        (is_whole && path.extension().is_none()).then_some(path)
    });
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    kill(Pid::from_raw(terminal.program()), Signal::SIGKILL).unwrap();

    let terminal = attached();
    terminal.sees("half written");
    terminal.key("Enter");
    turns(user, &session, 2);
    until("that what was sent is not offered again", || kept().is_none().then_some(()));
    terminal.types("of no use any more");
    until("another draft", || kept().map(drop));
    terminal.key("C-d");
    terminal.key("C-d");
    user.succeed(&["stop", &session]);
    user.succeed(&["session", "delete", &session, "--yes"]);
    assert!(kept().is_none(), "it goes with its session");
}

fn texts(log: &[serde_json::Value]) -> Vec<&str> {
    log.iter().filter(|body| body["type"] == "text").filter_map(|body| body["text"].as_str()).collect()
}
