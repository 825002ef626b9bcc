//! Commands of one person that run at the same time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use ensemble_protocol::AccountKey;
use serde_json::json;

use crate::acp::Editor;
use crate::ensemble::{Finished, User, up};
use crate::linking::add;
use crate::live::{guest, turns};
use crate::place::Place;
use crate::terminal::Terminal;

/// How often a guest gets and loses access while other commands run.
const ROUNDS: usize = 8;

#[test]
fn another_command_that_runs_causes_no_warning_of_the_server() {
    let owner = User::new(None);
    let (_up, url) = up(&owner, &["--no-runner"]);
    let (_guest, id) = guest(&url);
    let session = owner.json(&["session", "create", "--title", "Plans"])["session"]["id"].as_str().unwrap().to_owned();
    let is_over = AtomicBool::new(false);
    let ended: Vec<Finished> = std::thread::scope(|scope| {
        let others: Vec<_> = [["session", "list"], ["share", "link"]]
            .map(|words| {
                let mut words = words.to_vec();
                if words[1] == "link" {
                    words.push(&session);
                }
                let (owner, is_over) = (&owner, &is_over);
                scope.spawn(move || {
                    let mut ended = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        ended.push(owner.run(&words));
                    }
                    ended
                })
            })
            .into();
        let mut ended = Vec::new();
        for _ in 0..ROUNDS {
            ended.push(owner.run(&["share", "add", &session, &id]));
            ended.push(owner.run(&["share", "remove", &session, &id]));
        }
        is_over.store(true, Ordering::Relaxed);
        ended.extend(others.into_iter().flat_map(|other| other.join().unwrap()));
        ended
    });
    assert!(ended.len() > 2 * ROUNDS);
    for Finished { code, out, err } in &ended {
        assert!(*code == 0 && !err.contains("trust") && !err.contains("older key"), "{code}: {out}{err}");
    }
    // Each removal made a new key.
    let known = owner.json(&["session", "show", &session]);
    assert!(known["session"]["keyEpoch"].as_i64().unwrap() > ROUNDS as i64, "{known}");
}

#[test]
fn two_prompts_at_once_after_a_removal_both_arrive() {
    let place = Place::new();
    let user = &place.user;
    let (_up, url) = up(user, &[]);
    let (guest, id) = guest(&url);
    let with_lost_device = || {
        let lost = User::new(None);
        add(&guest, &lost, &[]);
        let key = std::fs::read_to_string(lost.files().join("account.key")).unwrap();
        guest.succeed(&["devices", "remove", &AccountKey::from_text(&key).unwrap().public_key(), "--yes"]);
    };
    let sessions = [(); 2].map(|()| {
        let session = place.start(&["claude", "[[say first]]"]);
        user.json(&["session", "show", &session])["session"]["id"].as_str().unwrap().to_owned()
    });
    for session in &sessions {
        turns(user, session, 1);
        user.succeed(&["share", "add", session, &id, "--level", "edit"]);
    }
    with_lost_device();

    // Both sessions need a new key before anything is written.
    let mut editor = Editor::start(user, &[], false);
    for session in &sessions {
        editor.done("session/load", &json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    }
    let prompts = sessions.each_ref().map(|session| editor.prompt(session, "[[say second]]"));
    let mut ended = BTreeSet::new();
    editor.until("both answers", |event| {
        if let Some(tag) = event["tag"].as_u64().filter(|tag| prompts.contains(tag)) {
            assert_eq!(event["result"]["stopReason"], "end_turn", "{event}");
            ended.insert(tag);
        }
        (ended.len() == prompts.len()).then_some(())
    });
    for session in &sessions {
        assert_eq!(user.json(&["session", "show", session])["session"]["keyEpoch"], 2);
    }
    // The same with a screen and two prompts in its one session.
    with_lost_device();
    let terminal = Terminal::open(user, 100, 30);
    terminal.ensemble("", &format!("attach {}", sessions[0]));
    terminal.sees("second");
    terminal.line("[[say third]]");
    terminal.line("[[say fourth]]");
    terminal.sees("fourth");
    turns(user, &sessions[0], 4);
}
