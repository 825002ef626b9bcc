//! What a machine has room for: a bounded number of agents at once, and sessions that have ended cost it nothing.

use std::path::{Path, PathBuf};

use crate::ensemble::{User, up, up_at};
use crate::live::{begun, takes, turns, until};
use crate::scripted;

/// The marks of sessions that rest, in the files of the user's programs.
fn marks(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(marks(&path));
        } else if path.file_name().is_some_and(|name| name == "rests") {
            found.push(path);
        }
    }
    found
}

fn rests(user: &User) {
    until("the session rests", || (marks(&user.files()).len() == 1).then_some(()));
}

#[test]
fn a_session_that_has_ended_rests_until_it_is_resumed() {
    let (user, _programs) = scripted::user();
    std::fs::create_dir_all(user.files()).unwrap();
    std::fs::write(user.files().join("runner.yaml"), "timing: {restAfterMs: 500}\n").unwrap();
    let (server, url) = up(&user, &[]);
    let session = user.succeed(&["claude", "one", "--detach"]).trim().to_owned();
    turns(&user, &session, 1);
    takes(&user, &["stop", &session], ("done", "ended"));
    rests(&user);
    // It is hosted again for what is written to it, and rests again.
    takes(&user, &["prompt", &session, "more"], ("rejected", "superseded"));
    rests(&user);
    user.succeed(&["claude", "--continue", "two", "--detach"]);
    turns(&user, &session, 2);
    assert_eq!(marks(&user.files()), Vec::<PathBuf>::new());
    takes(&user, &["stop", &session], ("done", "ended"));
    rests(&user);
    // Another process leaves it alone until then.
    assert_eq!(server.interrupt(), 0);
    let (_server, _) = up_at(&user, &["up", "--listen", url.trim_start_matches("http://"), "--json"]);
    rests(&user);
    user.succeed(&["claude", "--continue", "three", "--detach"]);
    let log = turns(&user, &session, 3);
    let texts: Vec<&str> =
        log.iter().filter(|body| body["type"] == "text").map(|body| body["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["said one", "said two", "said three"]);
}

#[test]
fn a_start_without_room_is_refused_and_says_who_is_in_the_way() {
    let (user, _programs) = scripted::user();
    std::fs::create_dir_all(user.files()).unwrap();
    std::fs::write(user.files().join("runner.yaml"), "maxAgents: 1\n").unwrap();
    let (_up, _url) = up(&user, &[]);
    let first = user.succeed(&["claude", "hang", "--detach"]).trim().to_owned();
    begun(&user, &first, 1);
    let known = user.json(&["sessions"])["sessions"].as_array().unwrap().clone();
    let [one] = known.as_slice() else { panic!("{known:?}") };
    let said = user.fail(&["claude", "more", "--detach"]);
    let id = one["session"]["id"].as_str().unwrap();
    assert!(said.contains("HOST_BUSY") && said.contains(&format!("session {id} works")), "{said}");
    assert_eq!(user.json(&["sessions"])["sessions"].as_array().unwrap().len(), 1, "nothing was begun");
    // An agent that has nothing to do makes room.
    user.succeed(&["stop", &first]);
    let second = user.succeed(&["claude", "two", "--detach"]).trim().to_owned();
    turns(&user, &second, 1);
    let third = user.succeed(&["claude", "three", "--detach"]).trim().to_owned();
    turns(&user, &third, 1);
}
