//! Live sessions in scripts: no terminal, pipes and JSON.

use std::io::Write as _;
use std::process::Stdio;

use crate::ensemble::{Running, User, up};
use crate::live::turns;
use crate::scripted;

/// The lines of a command that keeps running, until one has this text.
#[track_caller]
fn until_line(mut running: Running, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = running.line();
        assert!(!line.is_empty(), "it has ended: {lines:#?}");
        lines.push(line.trim_end().to_owned());
        if lines.last().is_some_and(|line| line.contains(text)) {
            return lines;
        }
    }
}

fn sessions(user: &User) -> usize {
    user.json(&["sessions", "--all"])["sessions"].as_array().unwrap().len()
}

#[test]
fn without_a_terminal_a_session_begins_with_a_prompt_or_not_at_all() {
    let (user, _programs) = scripted::user();
    let (_up, _url) = up(&user, &[]);
    let refused = user.fail(&["claude"]);
    assert!(
        refused.contains("There is no terminal to type in") && refused.contains("`ensemble claude \"…\"`"),
        "{refused}"
    );
    assert!(user.run_with_input(&["claude"], " \n").code == 1 && sessions(&user) == 0);

    let mut command = user.command(&["claude"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("\u{feff}from a pipe\n".as_bytes()).unwrap();
    let lines = until_line(Running::out_of(child), "said from a pipe");
    assert!(lines.iter().any(|line| line == "> from a pipe"), "{lines:#?}");
    assert_eq!(sessions(&user), 1);
    let session = user.json(&["sessions"])["sessions"][0]["session"]["ref"].as_str().unwrap().to_owned();
    let sent = user.run_with_input(&["prompt", &session, "-"], "\u{feff}and another");
    assert_eq!(sent.code, 0, "{}", sent.err);
    let log = user.succeed(&["log", &session]);
    assert!(
        log.contains("> and another") && !log.contains('\u{feff}'),
        "a byte order mark is no part of a prompt: {log}"
    );
    // In a script without a prompt `--detach` reads nothing.
    assert!(!user.succeed(&["claude", "--detach"]).trim().is_empty());
}

#[test]
fn a_transcript_is_read_as_one_and_its_keys_stay_where_they_are() {
    let (user, _programs) = scripted::user();
    let (_up, _url) = up(&user, &[]);
    let begun = user.json(&["claude", "hello", "--title", "Kettle", "--detach"]);
    let session = begun["session"]["ref"].as_str().unwrap();
    assert_eq!(begun["metadata"]["title"], "Kettle");
    let listed = user.json(&["sessions"])["sessions"][0].clone();
    for sealed in ["metadata", "encryptionKey", "encryptedKey", "hostKey", "agentState"] {
        assert!(
            begun["session"].get(sealed).is_none() && listed["session"].get(sealed).is_none(),
            "{sealed}: {begun:#}"
        );
    }
    turns(&user, session, 1);

    let log = user.succeed(&["log", session]);
    assert!(log.contains("> hello\n") && log.contains("said hello"), "{log}");
    assert_eq!(user.succeed(&["session", "read", session]), log);
    assert_eq!(user.succeed(&["session", "read", session, "--all"]), log);
    assert!(user.fail(&["session", "follow", session]).contains(&format!("`ensemble log --follow {session}`")));
    let lines = until_line(Running::start(&user, &["attach", session]), "-- turn:");
    assert!(lines.iter().any(|line| line == "said hello"), "{lines:#?}");
    let json = until_line(Running::start(&user, &["attach", session, "--json"]), "said hello");
    let last: serde_json::Value = serde_json::from_str(json.last().unwrap()).unwrap();
    assert_eq!((&last["author"]["host"], &last["body"]["text"]), (&true.into(), &"said hello".into()));
}

#[test]
fn the_first_prompt_is_the_title_and_the_only_session_needs_no_name() {
    let (user, _programs) = scripted::user();
    let (_up, _url) = up(&user, &[]);
    let session = user.succeed(&["claude", "--detach"]).trim().to_owned();
    let listed = |user: &User| user.json(&["sessions"])["sessions"][0]["metadata"].clone();
    let directory = listed(&user);
    assert!(directory.get("title").is_none(), "{directory:#}");
    assert!(user.succeed(&["sessions"]).contains("  ~"), "the directory below the home stands for a title");
    user.succeed(&["prompt", &session, "Fix the parser\nplease"]);
    assert_eq!(listed(&user)["title"], "Fix the parser…");
    assert_eq!(listed(&user)["path"], directory["path"], "the rest stays");
    user.succeed(&["prompt", &session, "And now the docs"]);
    assert_eq!(listed(&user)["title"], "Fix the parser…");
    user.succeed(&["session", "rename", &session, "Parser"]);
    user.succeed(&["prompt", &session, "More"]);
    assert_eq!(listed(&user)["title"], "Parser");

    until_line(Running::start(&user, &["attach"]), "said And now the docs");
    let other = user.succeed(&["claude", "--detach"]).trim().to_owned();
    assert!(user.fail(&["attach"]).contains("Say which session"));
    // A machine is found by the name that it is given.
    let machine = user.json(&["machine", "list"])["machines"][0]["machine"]["ref"].as_str().unwrap().to_owned();
    assert!(user.succeed(&["machine", "rename", &machine, "box"]).contains("is called box"));
    assert!(user.succeed(&["sessions"]).contains("  box  "));
    assert!(user.succeed(&["machine", "show", "box"]).contains(&machine));
    user.succeed(&["stop", &other]);
}
