//! A person begins a session that is shared, continues the last one in a directory, and looks up what was allowed.

use crate::ensemble::up;
use crate::live::{guest, request, turns};
use crate::place::Place;
use crate::scripted;

#[test]
fn the_last_session_of_a_directory_continues() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let continued = |words: &[&str]| {
        let mut all = vec!["claude", "--continue", "--dir", "work", "--detach"];
        all.extend(words);
        all.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |words: &[&str]| {
        let all = continued(words);
        user.run(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let missing = run(&["x"]);
    assert!(missing.code == 1 && missing.err.contains("There is no session of claude in"), "{}", missing.err);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    // Another directory, and another agent, have their own.
    std::fs::create_dir(user.home().join("other")).unwrap();
    let other = user.succeed(&["claude", "--dir", "other", "--detach"]).trim().to_owned();
    let again = run(&["[[run touch made]]"]);
    assert_eq!((again.out.trim(), again.code), (session.as_str(), 0), "{}", again.err);
    assert_ne!(other, session);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(user, &session, 2);
    assert_eq!(user.run(&["codex", "--continue", "--dir", "work", "--detach"]).code, 1);

    // One that has ended is resumed.
    user.succeed(&["stop", &session]);
    assert_eq!(run(&["[[say third]]"]).out.trim(), session);
    let log = turns(user, &session, 3);
    assert!(log.iter().any(|body| body["text"] == "third"), "{log:#?}");
    assert!(user.succeed(&["sessions"]).contains(&session), "it is active again");

    // What was allowed, and by whom.
    let approvals = user.succeed(&["log", &session, "--approvals"]);
    assert!(
        approvals.contains("touch made") && approvals.contains("answered: ") && approvals.contains("(by "),
        "{approvals}"
    );
    assert!(!approvals.contains("third"), "{approvals}");
    let lines = user.json_lines(&["log", &session, "--approvals"]);
    let types: Vec<&str> = lines.iter().map(|line| line["body"]["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["permission", "answer", "resolved"]);
}

#[test]
fn a_session_is_shared_from_its_beginning() {
    let (user, _programs) = scripted::user();
    let (_up, url) = up(&user, &[]);
    let (reader, id) = guest(&url);
    let with = format!("{id}:view");
    let session = user.succeed(&["claude", "hello", "--share", &with, "--detach"]).trim().to_owned();
    assert!(!session.contains('\n'), "the ref alone is printed: {session}");
    turns(&user, &session, 1);
    let full = user.json(&["sessions"])["sessions"][0]["session"]["id"].as_str().unwrap().to_owned();
    assert!(reader.succeed(&["log", &full]).contains("said hello"));
    for wrong in ["stranger", "x:owner"] {
        let refused = user.run(&["claude", "--share", wrong, "--detach"]);
        assert!(refused.code == 2 && refused.err.contains("--share"), "{}", refused.err);
    }
    assert_eq!(user.json(&["sessions"])["sessions"].as_array().unwrap().len(), 1);
}
