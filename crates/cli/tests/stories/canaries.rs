//! What a session is about is on the machine and on its people's screens, and nowhere else.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::ensemble::{Running, User};
use crate::live::{request, turns};
use crate::place::Place;

const TITLE: &str = "kanarientitel";
const TEXT: &str = "kanarientext";
const COMMAND: &str = "kanarienbefehl";
const FILE: &str = "kanariendatei";
const QUESTION: &str = "kanarienfrage";
const ANSWER: &str = "kanarienantwort";
const ALL: [&str; 6] = [TITLE, TEXT, COMMAND, FILE, QUESTION, ANSWER];

/// Which of them are in these bytes.
fn found(bytes: &[u8]) -> Vec<&'static str> {
    let has = |canary: &&str| bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
    ALL.into_iter().filter(has).collect()
}

/// Looks into a file, or into all files of a folder. Returns how many bytes there were.
fn look(path: &Path) -> usize {
    if path.is_dir() {
        return std::fs::read_dir(path).unwrap().map(|entry| look(&entry.unwrap().path())).sum();
    }
    let bytes = std::fs::read(path).unwrap();
    let found = found(&bytes);
    let lines = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> =
        lines.lines().filter(|line| found.iter().any(|canary| line.contains(canary))).take(3).collect();
    assert!(found.is_empty(), "{} has {found:?}: {lines:#.1000?}", path.display());
    bytes.len()
}

/// Runs a command and returns what it has written to its log.
fn logged(user: &User, arguments: &[&str]) -> String {
    let ended = user.run(arguments);
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.out, ended.err);
    ended.err
}

/// The log of the host that runs in the background.
fn log_of_host(user: &User) -> PathBuf {
    let mut hosts = std::fs::read_dir(user.files().join("hosts")).unwrap();
    hosts.next().unwrap().unwrap().path().join("host.log")
}

#[test]
fn the_server_and_the_logs_see_nothing_of_it() {
    // Every line of every library, too.
    let place = Place::with(&[("RUST_LOG", "trace")]);
    let user = &place.user;
    let log_of_server = user.home().join("server.log");
    let log = File::create(&log_of_server).unwrap();
    let arguments = ["up", "--no-runner", "--listen", "127.0.0.1:0", "--json"];
    let mut server = Running::logging(user, &arguments, log);
    assert!(server.line().contains("url"));

    let session = place.start(&["claude", "--title", TITLE, &format!("[[say {TEXT}]]")]);
    turns(user, &session, 1);
    let mut logs = logged(user, &["prompt", &session, &format!("[[run echo {COMMAND} > {FILE}]]")]);
    let asked = request(user, &session);
    logs += &logged(user, &["answer", &session, "allow", "--request", &asked]);
    turns(user, &session, 2);
    assert!(place.file(FILE).exists());
    let options = format!(r#"[{{"label":"{ANSWER}","description":"a"}},{{"label":"other","description":"b"}}]"#);
    let question = format!(r#"{{"question":"{QUESTION}?","header":"Head","options":{options},"multiSelect":false}}"#);
    let asks = format!(r#"[[tool AskUserQuestion {{"questions":[{question} ]}}]]"#);
    logs += &logged(user, &["prompt", &session, &asks]);
    let asked = request(user, &session);
    logs += &logged(user, &["answer", &session, ANSWER, "--request", &asked]);
    turns(user, &session, 3);
    logs += &logged(user, &["sessions"]);
    let shown = user.succeed(&["log", &session]) + &user.succeed(&["sessions"]);
    assert_eq!(found(shown.as_bytes()), ALL, "people see it: {shown}");
    logs += &logged(user, &["stop", &session]);
    drop(server);

    assert_eq!(found(logs.as_bytes()), [] as [&str; 0], "the logs of clients: {logs}");
    assert!(look(&user.files().join("data")) > 100_000, "the databases were read");
    for log in [log_of_server, log_of_host(user)] {
        assert!(look(&log) > 1_000, "{} was written", log.display());
        let lines = std::fs::read_to_string(&log).unwrap();
        assert!(lines.contains("TRACE") || lines.contains("DEBUG"), "{} has details", log.display());
    }
}
