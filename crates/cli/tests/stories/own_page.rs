//! `ensemble web`: the page from a person's own program, at work with a server elsewhere, and closed to everyone else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::ensemble::{Running, User, up};
use crate::live::until;
use crate::runs::program;
use crate::terminal::Terminal;

/// Starts `ensemble web` on a free port. Its address.
pub(crate) fn serve(user: &User, server: &str) -> (Running, String) {
    let mut running = Running::start(user, &["--server", server, "web", "--port", "0", "--json"]);
    let mut text = String::new();
    while !text.ends_with("}\n") {
        let line = running.line();
        assert!(!line.is_empty(), "{text}");
        text.push_str(&line);
    }
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["server"], server);
    (running, printed["address"].as_str().unwrap().to_owned())
}

/// The whole answer to a request with these lines.
fn ask(address: &str, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{}\r\nConnection: close\r\n\r\n", lines.join("\r\n")).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_person_makes_an_account_on_the_page_of_the_own_program() {
    let (owner, person) = (User::new(None), User::new(None));
    let (_up, server) = up(&owner, &["--no-runner"]);
    let (running, address) = serve(&person, &server);
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web").canonicalize().unwrap();
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "tests/story/own.test.mjs"]).current_dir(&web);
    node.env("PAGE_URL", &address).env("ENSEMBLE_URL", &server);
    let ended = node.status().expect("node must be installed, and `make web` must have run");
    assert!(ended.success(), "the story failed; see above");
    assert_eq!(running.interrupt(), 0);
}

#[test]
fn only_the_printed_address_is_answered_and_only_reading() {
    let person = User::new(None);
    let (_running, address) = serve(&person, "http://127.0.0.1:9");
    let host = format!("Host: {}", address.trim_start_matches("http://"));
    let port = address.rsplit(':').next().unwrap();

    let page = ask(&address, &["GET / HTTP/1.1", &host]);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
    assert!(page.contains("connect-src 'self' http://127.0.0.1:9;"), "{page}");
    // A place in the app is the page, a file that is not there is nothing.
    let place = ask(&address, &["GET /sessions/0199 HTTP/1.1", &host]);
    assert!(place.contains("<!doctype html>"), "{place}");
    for path in ["/nothing.js", "/index.html.br", "/../Cargo.toml", "/assets/%2e%2e/index.html"] {
        let answer = ask(&address, &[&format!("GET {path} HTTP/1.1"), &host]);
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    let named = ask(&address, &["GET /server.json HTTP/1.1", &host]);
    assert!(named.ends_with(r#"{"server":"http://127.0.0.1:9"}"#), "{named}");
    assert!(!named.to_ascii_lowercase().contains("access-control"), "{named}");

    // A foreign name that leads here (DNS rebinding).
    for other in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", &format!("localhost:{port}"), ""] {
        let answer = ask(&address, &["GET /server.json HTTP/1.1", &format!("Host: {other}")]);
        assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains(":9\""), "{other}: {answer}");
    }
    let twice = ask(&address, &["GET /server.json HTTP/1.1", &host, "Host: evil.example"]);
    assert!(twice.starts_with("HTTP/1.1 4"), "{twice}");
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = ask(&address, &[&format!("{method} / HTTP/1.1"), &host, "Content-Length: 0"]);
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("GET, HEAD"), "{method}: {answer}");
    }
    let head = ask(&address, &["HEAD / HTTP/1.1", &host]);
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");

    // The address stays one person's.
    let taken = person.fail(&["web", "--port", port]);
    assert!(taken.contains("--port"), "{taken}");
}

/// A desktop's `xdg-open`, which writes what it was given and its process into the returned file.
pub(crate) fn desktop(person: &User) -> (String, PathBuf) {
    desktop_with(person, "")
}

/// The same, with what it does after that.
fn desktop_with(person: &User, last: &str) -> (String, PathBuf) {
    let (bin, shown) = (person.home().join("bin"), person.home().join("shown"));
    std::fs::create_dir(&bin).unwrap();
    let line = format!("echo \"$1 $$\" > {0}.new; mv {0}.new {0}", shown.display());
    program(&bin, "xdg-open", &format!("#!/bin/sh\n{line}\n{last}\n"));
    (format!("DISPLAY=:9 PATH={}:$PATH", bin.display()), shown)
}

/// Some desktops' `xdg-open` ends with the browser only.
#[test]
fn a_browser_that_stays_open_does_not_hold_up_the_page() {
    let person = User::new(None);
    let (variables, shown) = desktop_with(&person, "exec tail -f /dev/null");
    let terminal = Terminal::open(&person, 100, 20);
    terminal.ensemble(&variables, "--server http://127.0.0.1:9 web --port 0 --open");
    let text = until("the browser", || std::fs::read_to_string(&shown).ok());
    let (address, browser) = text.trim().split_once(' ').unwrap();
    let page = ask(address, &["GET / HTTP/1.1", &format!("Host: {}", address.trim_start_matches("http://"))]);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
    terminal.key("C-c");
    terminal.until("the shell", is_ready);
    // The person's windows stay.
    kill(Pid::from_raw(browser.parse().unwrap()), Signal::SIGKILL).expect("the browser is gone");
}

pub(crate) fn is_ready(lines: &[String]) -> bool {
    lines.iter().rfind(|line| !line.is_empty()).is_some_and(|line| line.ends_with("ready$"))
}
