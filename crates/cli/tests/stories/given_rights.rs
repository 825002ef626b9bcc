//! What a removed device has let people do in live sessions is taken back, unless its owner keeps it.

use serde_json::{Value, json};

use crate::ensemble::User;
use crate::linking::add;
use crate::live::{WithGuest, has_no_right, right_of, seen, turns, with_guest};
use crate::lying::LyingServer;
use crate::place::Place;

fn key_of(user: &User) -> String {
    user.json(&["whoami"])["device"]["publicKey"].as_str().unwrap().to_owned()
}

#[test]
fn the_rights_that_a_removed_device_has_given_end_with_it() {
    let place = Place::new();
    let owner = &place.user;
    let WithGuest { up: _up, url: _, guest: editor, guest_id: editor_id, session } = with_guest(&place, "view", &[]);
    // A phone gives them the right to prompt, and is removed.
    let lose_phone = |kept: &[&str]| {
        let phone = User::new(None);
        add(owner, &phone, &["--role", "linked"]);
        let given = phone.run(&["share", "change", &session, &editor_id, "--level", "edit"]);
        assert!(given.code == 0 && given.err.contains("The machine takes prompts"), "{}", given.err);
        let key = key_of(&phone);
        let removed = owner.json(&[&["devices", "remove", &key, "--yes"], kept].concat());
        let [right] = &**removed["rights"].as_array().unwrap() else { panic!("{removed}") };
        assert_eq!((&right["userId"], &right["may"]), (&json!(editor_id), &json!("prompt")));
        assert_eq!(right["kept"], !kept.is_empty(), "{right}");
        key
    };

    lose_phone(&["--keep-rights"]);
    let prompted = editor.run(&["prompt", &session, "[[say kept]]"]);
    assert_eq!(prompted.code, 0, "{}", prompted.err);
    turns(owner, &session, 2);
    // The owner gave it, so another removal leaves it as it is.
    let other = User::new(None);
    add(owner, &other, &["--role", "linked"]);
    assert_eq!(owner.json(&["devices", "remove", &key_of(&other), "--yes"])["rights"], json!([]));

    owner.succeed(&["share", "change", &session, &editor_id, "--level", "view"]);
    let phone = lose_phone(&[]);
    let (_, log) = seen(owner, &session, "the end of the right", |log| has_no_right(log, &editor_id));
    let signed_by = |grant: &Value| grant["key"].as_str().map(str::to_owned);
    let states: Vec<Value> = log.iter().enumerate().filter_map(|(at, _)| right_of(&log[..=at], &editor_id)).collect();
    let given = states.iter().rposition(|grant| grant["may"] == "prompt").unwrap();
    assert_eq!(signed_by(&states[given]), Some(phone), "the phone had given it");
    assert_eq!(signed_by(states.last().unwrap()), Some(key_of(owner)), "this device has taken it back");
}

#[test]
fn it_is_said_where_it_was_not_looked_for_rights_of_a_removed_device() {
    let (server, place) = (LyingServer::start(), Place::new());
    let owner = &place.user;
    owner.succeed(&["--server", &server.url, "login"]);
    let session = place.start(&["claude", "[[say begin]]"]);
    turns(owner, &session, 1);
    let phone = User::new(None);
    add(owner, &phone, &["--role", "linked"]);
    // The account has more live sessions than are searched.
    server.lie(|line, answer| {
        let listed = answer.get_mut("sessions").filter(|_| line.starts_with("GET /v1/sessions"));
        if let Some(sessions) = listed.and_then(Value::as_array_mut) {
            sessions.extend(std::iter::repeat_n(sessions.first().cloned(), 102).flatten().collect::<Vec<_>>());
        }
    });
    let removed = owner.run(&["devices", "remove", &key_of(&phone), "--yes"]);
    let not_searched = "What the device has let people do in 3 older live sessions was not checked.";
    assert!(removed.code == 0 && removed.err.contains(not_searched), "{}", removed.err);
}
