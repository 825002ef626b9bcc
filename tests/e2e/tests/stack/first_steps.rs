//! The first steps with curl, run exactly as the documentation has them.

use std::path::Path;
use std::process::Command;

use ensemble_e2e::Stack;
use ensemble_testkit::Backend;

/// The commands under a heading of `docs/FIRST-CLIENT.md`.
fn commands_under(heading: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FIRST-CLIENT.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(heading).expect("the page has the heading");
    let (_, commands) = section.split_once("```sh\n").expect("commands follow the heading");
    commands.split_once("```").expect("the commands end").0.to_owned()
}

async fn first_steps(backend: Backend) {
    let stack = Stack::start(backend, &[]).await.unwrap();
    let text = commands_under("## With curl");
    let commands = text.replace("SERVER=http://127.0.0.1:8080", &format!("SERVER={}", stack.url()));
    assert_ne!(commands, text, "the commands name the server once");
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", &commands]).current_dir(folder.path());
    let done = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{out}\n{err}");
    let last = out.lines().last().unwrap();
    let page: serde_json::Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {out}\n{err}"));
    let contents: Vec<&str> =
        page["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["<first ciphertext>", "<second ciphertext>"]);
    assert!(stack.services.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_steps_on_sqlite() {
    first_steps(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_steps_on_postgres() {
    first_steps(Backend::Postgres).await;
}
