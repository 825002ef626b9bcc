//! Commands of an agent that outlive their turn: people see that they run, and end them.

use serde_json::Value;

use crate::ensemble::up;
use crate::live::{seen, turns, until};
use crate::place::Place;

/// Whether a process has this word among its arguments.
fn runs(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).any(|command| {
        let words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        words.into_iter().any(|known| known == word)
    })
}

fn still_running(log: &[Value]) -> Option<&Vec<Value>> {
    log.iter().rev().find(|body| body["type"] == "state").and_then(|state| state["stillRunning"].as_array())
}

#[test]
fn a_command_in_the_background_is_shown_and_an_interrupt_ends_it() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    // Its length is a name for it.
    let length = format!("{}", 100_000_000 + u64::from(std::process::id()));
    let tool = format!(r#"[[tool Bash {{"command":"sleep {length}","run_in_background":true,"description":"wait"}}]]"#);
    let session = place.start(&["claude", "--mode", "bypass", "--yes", &tool]);
    turns(user, &session, 1);
    let (shown, _) = seen(user, &session, "the command that still runs", |log| still_running(log).cloned());
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].as_str().unwrap().contains(&length), "{shown:?}");
    assert!(runs(&length));
    until("the command in the list", || user.succeed(&["sessions"]).contains("1 command still runs").then_some(()));

    user.succeed(&["interrupt", &session]);
    until("the end of the command", || (!runs(&length)).then_some(()));
    seen(user, &session, "that nothing runs any more", |log| still_running(log).is_none().then_some(()));
    until("the list without it", || (!user.succeed(&["sessions"]).contains("still runs")).then_some(()));
    user.succeed(&["stop", &session]);
}
