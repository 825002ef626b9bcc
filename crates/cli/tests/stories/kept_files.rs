//! What is kept on a machine: who can read and replace it, and what is said when the disk is full. A limit on the size of files stands for
//! that: each write to a file fails, for one process.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;

use crate::ensemble::{User, up};
use crate::live::{host_of, kill, turns, until};
use crate::place::Place;

/// The command after what a shell does first. A signal that is ignored stays ignored in what it starts.
fn after(shell: &str, user: &User, arguments: &[&str]) -> Command {
    let own = user.command(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; {shell} exec \"$@\""), "sh"]);
    command.arg(own.get_program()).args(own.get_args()).current_dir(own.get_current_dir().unwrap());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_session_whose_machine_cannot_write_says_so_until_it_can() {
    let place = Place::with_agent("claude", "claude");
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let started = after("", user, &["claude", "[[say first]]", "--dir", "work", "--detach"]).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let session = String::from_utf8(started.stdout).unwrap().trim().to_owned();
    turns(user, &session, 1);
    assert!(!user.succeed(&["sessions"]).contains("disk"));

    let host = host_of(user).unwrap();
    let full = Rlimit { current: Some(0), ..getrlimit(Resource::Fsize) };
    prlimit(Pid::from_raw(host.cast_signed()), Resource::Fsize, full).unwrap();
    // The first log line that fails may be one of the turn before, while the prompt is being sent.
    let prompted = user.succeed(&["prompt", &session, "[[say second]]"]);
    assert!(prompted.contains("its disk cannot be written: File too large"), "{prompted}");
    let waiting = user.succeed(&["sessions", "--needs-me"]);
    assert!(waiting.contains("its disk cannot be written"), "{waiting}");

    // The next host has room.
    kill(host);
    until("the end of the host", || (host_of(user) != Some(host)).then_some(()));
    user.succeed(&["prompt", &session, "[[say third]]"]);
    turns(user, &session, 3);
    until("the end of the problem", || (!user.succeed(&["sessions"]).contains("disk")).then_some(()));
}

#[test]
fn doctor_says_that_nothing_can_be_written() {
    let user = User::new(None);
    fs::create_dir(user.files()).unwrap();
    let disk = |shell: &str| {
        let doctor = after(shell, &user, &["doctor", "--server", "http://127.0.0.1:9", "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == "disk").unwrap_or_else(|| panic!("{report:#}")).clone()
    };
    let full = disk("ulimit -f 0;");
    assert_eq!(full["verdict"], "wrong");
    let found = full["found"].as_str().unwrap();
    assert!(found.starts_with(user.files().to_str().unwrap()) && found.contains("File too large"), "{full}");
    assert_eq!(disk("")["verdict"], "ok");
    assert_eq!(fs::read_dir(user.files()).unwrap().count(), 0, "nothing is left");
}

/// What others can do with the files and folders below this folder.
fn open_to_others(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in entries {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if !metadata.is_symlink() && metadata.permissions().mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", metadata.permissions().mode(), path.display()));
        }
        if metadata.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

#[test]
fn the_files_of_a_host_are_its_users_alone_whatever_the_umask_is() {
    let place = Place::with_agent("claude", "claude");
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let started = after("umask 0;", user, &["claude", "[[say first]]", "--dir", "work", "--detach"]).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let session = String::from_utf8(started.stdout).unwrap().trim().to_owned();
    turns(user, &session, 1);
    assert_eq!(open_to_others(&user.files().join("hosts")), [] as [&str; 0]);
}

#[test]
fn no_key_is_made_where_others_can_replace_it() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &["--no-runner"]);
    let user = User::new(Some(&url));
    fs::create_dir(user.files()).unwrap();
    fs::set_permissions(user.files(), Permissions::from_mode(0o777)).unwrap();
    let refused = user.fail(&["login"]);
    assert!(refused.contains(&format!("`chmod 700 {}`", user.files().display())), "{refused}");
    assert!(!user.files().join("account.key").exists());
    // A group with the number of its user is the user's own.
    let found = fs::metadata(user.files()).unwrap();
    let mode = if found.gid() == found.uid() { 0o770 } else { 0o700 };
    fs::set_permissions(user.files(), Permissions::from_mode(mode)).unwrap();
    user.succeed(&["login"]);
}
