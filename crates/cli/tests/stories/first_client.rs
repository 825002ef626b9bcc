//! The programs of docs/FIRST-CLIENT.md, run as they stand there. The official program opens what they have sealed.

use std::path::Path;
use std::process::Command;

use crate::ensemble::{User, up};

const PAGE: &str = include_str!("../../../../docs/FIRST-CLIENT.md");

/// The one block of the page in this language.
fn block(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    let (block, rest) = rest.split_once("```\n").unwrap();
    assert!(!rest.contains(&format!("```{language}\n")), "one block of {language}");
    block
}

/// Runs a program of the page as a new user, whose key it makes, and reads the session as that user.
fn works(server: &str, language: &str, file: &str, runner: &mut Command) {
    let user = User::new(Some(server));
    std::fs::create_dir_all(user.files()).unwrap();
    std::fs::write(user.files().join(file), block(language)).unwrap();
    let output = runner
        .args([file, server])
        .current_dir(user.files())
        .output()
        .expect("this test needs Python 3.11 and Go 1.26");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{file}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed, "Hello\n", "{file}");
    user.succeed(&["login"]);
    let listed = user.json(&["session", "list"])["sessions"][0].clone();
    assert_eq!(listed["metadata"]["title"], "My first session", "{file}");
    let messages = user.json_lines(&["session", "read", listed["session"]["ref"].as_str().unwrap()]);
    assert_eq!(messages.len(), 1, "{file}");
    assert_eq!(messages[0]["body"]["text"], "Hello", "{file}");
    // The list and the content ring are good as well: the official program seals with them.
    user.succeed(&["session", "create", "--title", "Another"]);
}

#[test]
fn the_first_clients_of_the_page_work() {
    let owner = User::new(None);
    let (_up, server) = up(&owner, &["--no-runner"]);
    // What `.ci/setup` has installed, where Python came without it.
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/python");
    works(&server, "python", "first_client.py", Command::new("python3").env("PYTHONPATH", packages));
    works(&server, "go", "first_client.go", Command::new("go").arg("run"));
}
