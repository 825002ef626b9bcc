//! A home whose path is longer than the path of a socket may be.

use std::fs::{self, File};
use std::path::Path;

use crate::ensemble::{Running, up, wait_for_runner};
use crate::live::until;
use crate::place::Place;

#[test]
fn a_runner_without_a_place_for_its_socket_does_tasks_and_says_what_it_cannot() {
    let base = tempfile::tempdir().unwrap();
    let long: &'static str = base.path().join("x".repeat(100)).display().to_string().leak();
    fs::create_dir(long).unwrap();
    // No folder for sockets is short, but for the one below /tmp.
    let place = Place::with(&[("ENSEMBLE_HOME", long), ("XDG_RUNTIME_DIR", ""), ("TMPDIR", long)]);
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let log = base.path().join("log");
    let start = || {
        let runner = Running::logging(user, &["runner"], File::create(&log).unwrap());
        wait_for_runner(user);
        runner
    };
    let runner = start();
    let sockets = until("the sockets", || {
        let host = fs::read_dir(Path::new(long).join("hosts")).ok()?.next()?.ok()?;
        fs::read_link(host.path().join("sockets")).ok()
    });
    assert!(sockets.starts_with("/tmp"), "{}", sockets.display());
    runner.interrupt();

    fs::write(&sockets, "").unwrap();
    let _runner = start();
    let done = user.run(&["do", "[[say hello]]", "--dir", "work", "--provider", "claude"]);
    fs::remove_file(&sockets).unwrap();
    assert!(done.code == 0 && done.out.contains("hello"), "{}{}", done.out, done.err);
    let said = fs::read_to_string(&log).unwrap();
    for words in [
        "There is no place for the sockets of this program: /tmp/",
        "Programs of this computer cannot begin sessions: ",
    ] {
        assert!(said.contains(words), "{said}");
    }
}
