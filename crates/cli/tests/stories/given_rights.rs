//! What a removed device has let people do in live sessions is taken back, unless its owner keeps it.

use serde_json::json;

use crate::ensemble::{User, up};
use crate::linking::add;
use crate::live::{guest, seen, turns};
use crate::place::Place;

#[test]
fn the_rights_that_a_removed_device_has_given_end_with_it() {
    let place = Place::new();
    let owner = &place.user;
    let (_up, url) = up(owner, &[]);
    let (editor, editor_id) = guest(&url);
    let session = place.start(&["claude", "[[say begin]]"]);
    turns(owner, &session, 1);
    let add_device = |kept: &[&str]| {
        let phone = User::new(None);
        add(owner, &phone, &["--role", "linked"]);
        let given = phone.run(&["share", "change", &session, &editor_id, "--level", "edit"]);
        assert!(given.code == 0 && given.err.contains("The machine takes prompts"), "{}", given.err);
        let key = phone.json(&["whoami"])["device"]["publicKey"].as_str().unwrap().to_owned();
        let removed = owner.json(&[&["devices", "remove", &key, "--yes"], kept].concat());
        let [right] = &**removed["rights"].as_array().unwrap() else { panic!("{removed}") };
        assert_eq!((&right["userId"], &right["may"]), (&json!(editor_id), &json!("prompt")));
    };
    owner.succeed(&["share", "add", &session, &editor_id]);

    add_device(&["--keep-rights"]);
    let prompted = editor.run(&["prompt", &session, "[[say kept]]"]);
    assert_eq!(prompted.code, 0, "{}", prompted.err);
    turns(owner, &session, 2);
    // The owner gave it, so another removal leaves it as it is.
    let other = User::new(None);
    add(owner, &other, &["--role", "linked"]);
    let key = other.json(&["whoami"])["device"]["publicKey"].as_str().unwrap().to_owned();
    assert_eq!(owner.json(&["devices", "remove", &key, "--yes"])["rights"], json!([]));

    owner.succeed(&["share", "change", &session, &editor_id, "--level", "view"]);
    add_device(&[]);
    seen(owner, &session, "the end of the right", |log| {
        let state = log.iter().rev().find(|body| body["type"] == "state")?;
        let access = state["access"].as_array()?.iter().find(|grant| grant["user"] == editor_id.as_str())?;
        (access["may"] == "none").then_some(())
    });
    assert_ne!(editor.run(&["prompt", &session, "[[say late]]"]).code, 0);
}
