//! The web app in a real browser, with a real agent on the machine of the same account: `web/tests/story` tells the stories.

use std::path::Path;
use std::process::Command;

use ensemble_testkit::free_port;

use crate::ensemble::{User, up};
use crate::place::Place;

/// How much of what Node says of failed steps is repeated.
const FIRST_LINES: usize = 80;

#[test]
fn a_person_works_with_an_agent_from_the_page() {
    tell("first");
}

#[test]
fn a_person_comes_back_to_the_page() {
    tell("away");
}

#[test]
fn a_person_does_the_rest_of_the_page() {
    tell("more");
}

#[test]
fn a_person_does_all_of_it_by_keys_alone() {
    tell("keys");
}

#[test]
fn a_person_has_a_browser_that_is_out_of_order() {
    tell("worn");
}

#[test]
fn a_person_opens_the_browser_of_this_computer() {
    tell("open");
}

#[test]
fn a_person_begins_on_a_phone() {
    tell("phone");
}

#[test]
fn a_person_has_chromium_firefox_or_webkit() {
    tell("three");
}

#[test]
fn a_person_has_a_server_that_fails() {
    tell_between("lies");
}

#[test]
fn a_person_has_an_address_that_holds_streams_back() {
    tell_between("held");
}

/// Tells one of the stories with a place for a server between the page and the real one.
fn tell_between(story: &str) {
    let port = free_port();
    let between = format!("http://127.0.0.1:{port}");
    let server = User::new(None);
    let (_up, url) = up(&server, &["--no-runner", "--public-url", &between]);
    tell_with(story, &url, &Place::new(), &[("BETWEEN", &between)]);
}

/// Tells one of the stories, with a separate server and terminal.
fn tell(story: &str) {
    let server = User::new(None);
    let (_up, url) = up(&server, &["--no-runner"]);
    tell_with(story, &url, &Place::new(), &[]);
}

/// The same with a server that runs, and with more for the story's environment.
pub(crate) fn tell_with(story: &str, url: &str, place: &Place, more: &[(&str, &str)]) {
    tell_to(&place.user, story, url, more);
}

/// The same with the terminal of this user.
pub(crate) fn tell_to(user: &User, story: &str, url: &str, more: &[(&str, &str)]) {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web").canonicalize().unwrap();
    let mut node = Command::new("node");
    for (name, value) in user.command(&[]).get_envs() {
        match value {
            Some(value) => node.env(name, value),
            None => node.env_remove(name),
        };
    }
    node.args(["--test", "--test-reporter=spec"]).arg(format!("tests/story/{story}.test.mjs")).current_dir(&web);
    node.env("ENSEMBLE", env!("CARGO_BIN_EXE_ensemble")).env("ENSEMBLE_URL", url);
    node.envs(more.iter().copied());
    let output = node.output().expect("node must be installed, and `make web` must have run");
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}{}", String::from_utf8_lossy(&output.stderr));
    // The steps after the first failed one fail because of it.
    let mut blocks = said
        .lines()
        .skip_while(|line| !line.contains("failing tests:"))
        .skip_while(|line| !line.starts_with("test at"));
    let heading = blocks.next().unwrap_or_default();
    let first: Vec<&str> = blocks.take_while(|line| !line.starts_with("test at")).take(FIRST_LINES).collect();
    assert!(output.status.success(), "the story failed:\n{heading}\n{}", first.join("\n"));
}
