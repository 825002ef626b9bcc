//! Sessions of several terminals of one person: each agent has the variables of the terminal that began its session.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::ensemble::up;
use crate::live::turns;
use crate::place::Place;

/// The search path of a command, behind a folder whose name is no text.
fn odd_path(usual: &OsStr) -> OsString {
    let mut path = OsString::from(OsStr::from_bytes(b"/nowhere/\xff:"));
    path.push(usual);
    path
}

#[test]
fn each_session_has_the_variables_of_its_terminal() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    // The first one starts the program that hosts both.
    for key in ["key-one", "key-two"] {
        let prompt = format!("[[run echo \"$ANTHROPIC_API_KEY [$GIT_DIR$GIT_INDEX_FILE] $GIT_AUTHOR_NAME\" > {key}]]");
        let mut command = user.command(&["claude", "--mode", "bypass", "--yes", &prompt, "--dir", "work", "--detach"]);
        let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.map(odd_path).unwrap();
        command.env("ANTHROPIC_API_KEY", key).env("PATH", path);
        command
            .env("GIT_DIR", "/victim/.git")
            .env("GIT_INDEX_FILE", "/victim/.git/index")
            .env("GIT_AUTHOR_NAME", "ann");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let session = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        turns(user, &session, 1);
        assert_eq!(std::fs::read_to_string(place.file(key)).unwrap(), format!("{key} [] ann\n"));
        user.succeed(&["stop", &session]);
    }
}
