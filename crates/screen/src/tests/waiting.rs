//! Prompts that wait while a turn works.

use std::collections::HashMap;

use crossterm::event::{KeyCode, KeyModifiers};
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use crate::action::Action;

use super::session::{Session, is_in, prompt, text, turn};

fn begins(prompt: &str) -> Content {
    let Content::Turn(begun) = turn(TurnState::Started, None) else { unreachable!() };
    Content::Turn(Turn { prompt_id: Some(prompt.to_owned()), ..begun })
}

/// The transcript without the lines around it.
fn lines(session: &mut Session) -> Vec<String> {
    let lines = session.lines().into_iter().skip(1);
    lines.take_while(|line| !line.starts_with(" ─")).collect()
}

fn waiting() -> Session {
    let mut session = Session::new(60, 24);
    session.mine("p1", prompt("first"));
    session.receipt("p1", "mine", ReceiptOutcome::Done, None);
    session.host(begins("p1"));
    session.host(is_in(Phase::Working));
    session.mine("p2", prompt("second"));
    session
}

#[test]
fn a_prompt_waits_below_the_turn_that_works_and_stands_where_its_turn_begins() {
    let mut session = waiting();
    session.frame(0, 0, "I do the");
    assert_eq!(lines(&mut session), [" you", " │ first", " I do the", " you · not taken yet", " │ second"]);
    session.receipt("p2", "mine", ReceiptOutcome::Queued, None);
    session.host(text(0, "I do the first."));
    assert_eq!(lines(&mut session), [" you", " │ first", " I do the first.", " you · queued", " │ second"]);
    session.host(turn(TurnState::Ended, None));
    session.host(begins("p2"));
    session.host(text(1, "The second."));
    let all = [" you", " │ first", " I do the first.", " you", " │ second", " The second."];
    assert_eq!(lines(&mut session), all);
}

#[test]
fn the_wheel_scrolls_from_below_a_prompt_that_waits() {
    let mut session = waiting();
    session.receipt("p2", "mine", ReceiptOutcome::Queued, None);
    let long: Vec<String> = (0..40).map(|line| format!("line {line}\n")).collect();
    session.host(text(0, &long.join("\n")));
    assert!(session.text().contains("line 39"));
    let about_lines = 30;
    for _ in 0..about_lines {
        session.key(KeyCode::Up);
        session.key(KeyCode::Up);
    }
    assert!(!session.text().contains("line 39"), "{}", session.text());
    session.press(KeyCode::End, KeyModifiers::CONTROL);
    assert!(session.text().contains(" │ second"));
}

#[test]
fn what_lacks_its_key_is_said_at_the_end() {
    let mut session = Session::new(60, 24);
    session.host(text(1, "Plums are ripe"));
    session.view.lacks_key = true;
    let shown = session.text();
    let said = shown.find("encrypted with a key that has not").unwrap();
    assert!(shown.find("Plums are ripe").unwrap() < said, "{shown}");
    session.view.lacks_key = false;
    assert!(!session.text().contains("encrypted"), "{}", session.text());
}

#[test]
fn while_the_list_is_kept_back_that_the_machine_names_nothing_is_called_its_owners() {
    let mut session = Session::new(60, 24);
    session.view.checked(session.me.user, 0, &HashMap::new());
    session.host(text(1, "Plums are ripe"));
    session.mine("p", prompt("Pick them"));
    session.bens("q", prompt("And the pears"));
    let shown = session.text();
    assert!(shown.contains("you (not confirmed)") && shown.contains("names version 1 of the owner's"), "{shown}");
    assert!(!shown.contains("Ben (not confirmed)"), "{shown}");
    session.view.checked(session.me.user, 1, &HashMap::new());
    assert!(!session.text().contains("confirmed"), "{}", session.text());
}

#[test]
fn the_newest_own_prompt_that_waits_is_taken_back() {
    let ctrl_x = |session: &mut Session| session.press(KeyCode::Char('x'), KeyModifiers::CONTROL);
    assert_eq!(ctrl_x(&mut waiting()), None, "the machine does not say that it can");
    let mut session = waiting();
    let mut can = super::session::state(Phase::Working);
    can.does = vec!["take_back".to_owned()];
    session.host(Content::State(Box::new(can)));
    session.receipt("p2", "mine", ReceiptOutcome::Queued, None);
    session.bens("b1", prompt("bens"));
    let Some(Action::TakeBack(named)) = ctrl_x(&mut session) else { panic!() };
    assert_eq!((named.local_id.as_str(), named.key.as_str()), ("p2", "mine"));
    session.mine("c1", Content::Control(Control::TakeBack(named)));
    session.receipt("p2", "mine", ReceiptOutcome::Rejected, Some(ReceiptCode::TakenBack));
    session.receipt("c1", "mine", ReceiptOutcome::Done, None);
    let all = [" you", " │ first", " you · taken back", " │ second", " Ben · not taken yet", " │ bens"];
    assert_eq!(lines(&mut session), all);
    session.key(KeyCode::Up);
    assert_eq!(session.text().matches("second").count(), 2, "its text is in the field: {}", session.text());
    assert_eq!(ctrl_x(&mut session), None, "Ben's is his");
}
