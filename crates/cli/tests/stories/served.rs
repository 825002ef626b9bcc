//! An agent that is a server: the sessions of a machine share one, and their turns continue while no program hosts them.

use std::path::Path;

use serde_json::Value;

use crate::ensemble::{User, up};
use crate::live::{assert_whole, begun, host_of, kill, request, turns, until};
use crate::place::Place;

/// The servers of codex with this home, without the script that npm starts each with.
fn servers(home: &Path) -> Vec<u32> {
    let wanted = format!("HOME={}", home.display());
    let found = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let command = std::fs::read(path.join("cmdline")).ok()?;
        let environment = std::fs::read(path.join("environ")).ok()?;
        let mut words = command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let is_program = words.next()?.ends_with("codex");
        let is_server = words.any(|word| word == "--listen");
        let is_here = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        (is_program && is_server && is_here).then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    found.collect()
}

/// Ends the program that hosts the sessions in good order, and waits until it has gone.
fn end_host(user: &User) {
    let host = host_of(user).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(host as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    until("the end of the host", || host_of(user).is_none().then_some(()));
}

fn ends(log: &[Value]) -> Vec<&str> {
    let ended = log.iter().filter(|body| body["type"] == "turn" && body["state"] == "ended");
    ended.map(|body| body["stopReason"].as_str().unwrap()).collect()
}

#[test]
fn turns_of_codex_continue_while_their_host_starts_again() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["codex", "[[say first]]"]);
    let other = place.start(&["codex", "[[say first]]"]);
    turns(user, &session, 1);
    turns(user, &other, 1);
    let [server] = servers(user.home()).try_into().unwrap();

    // One works, and the other one asks.
    user.succeed(&["prompt", &session, "[[run while [ ! -e go ]; do sleep 0.05; done; touch made]]"]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    user.succeed(&["prompt", &other, "[[run touch allowed]]"]);
    let asked = request(user, &other);
    end_host(user);
    assert_eq!(servers(user.home()), [server]);
    std::fs::write(place.file("go"), "").unwrap();
    until("the work of the agent", || place.file("made").exists().then_some(()));
    assert!(host_of(user).is_none(), "no program hosts the session");

    // The next command starts a host, which says what has happened, and asks again.
    user.succeed(&["prompt", &session, "[[say second]]"]);
    let said = turns(user, &session, 3);
    assert_eq!(ends(&said), ["end_turn"; 3], "{said:#?}");
    assert!(!said.iter().any(|body| body["type"] == "error"), "{said:#?}");
    let calls = said.iter().filter(|body| body["type"] == "tool_call" && body["status"] == "completed");
    assert_eq!(calls.count(), 1, "{said:#?}");
    assert_whole(&said);
    let again = request(user, &other);
    assert_ne!(again, asked);
    assert!(user.fail(&["answer", &other, "allow", "--request", &asked]).contains("is not open"));
    assert!(!place.file("allowed").exists());
    user.succeed(&["answer", &other, "allow", "--request", &again]);
    let said = turns(user, &other, 2);
    until("what was allowed", || place.file("allowed").exists().then_some(()));
    assert_eq!(ends(&said), ["end_turn"; 2], "{said:#?}");
    assert_whole(&said);

    // A host that is killed takes the server with it.
    user.succeed(&["prompt", &session, "[[hang]]"]);
    begun(user, &session, 4);
    kill(host_of(user).unwrap());
    until("the end of the servers", || servers(user.home()).is_empty().then_some(()));
    user.succeed(&["prompt", &session, "[[say third]]"]);
    let said = turns(user, &session, 5);
    assert_eq!(ends(&said)[3..], ["error", "end_turn"], "{said:#?}");
    assert_whole(&said);
    for session in [&session, &other] {
        user.succeed(&["stop", session]);
    }
    until("the end of the last server", || servers(user.home()).is_empty().then_some(()));
}
