//! What a person with limited access is offered, and whom the screen names for what they may not do.

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use super::cards::{card, chose, offers};
use super::session::{Session, is_in, prompt, turn};
use crate::{Level, control};

#[test]
fn the_keys_of_others_are_not_in_the_help() {
    let all = |level| {
        let mut session = Session::new(100, 60);
        session.level = level;
        session.host(is_in(Phase::Idle));
        let hints = session.text();
        session.key(KeyCode::Char('?'));
        (hints, session.text())
    };
    let (hints, help) = all(Level::Owner);
    assert!(hints.contains("shift-tab: mode") && help.contains("shift-tab") && help.contains("1, 2, 3, 4"), "{help}");
    let (hints, help) = all(Level::Prompt);
    assert!(!hints.contains("shift-tab") && !help.contains("shift-tab") && !help.contains("1, 2, 3, 4"), "{help}");
    assert!(hints.contains("?: help") && help.contains("esc") && help.contains("ctrl-s"), "{help}");
    let (hints, help) = all(Level::Read);
    assert!(hints.contains("?: help  q: leave") && hints.contains("Ben can let you write here."), "{hints}");
    assert!(!help.contains("interrupt") && !help.contains("ctrl-s") && help.contains("pgup"), "{help}");
}

#[test]
fn what_only_the_owner_may_do_names_the_owner() {
    let mut session = Session::new(60, 20);
    session.level = Level::Prompt;
    session.host(is_in(Phase::Idle));
    for (typed, said) in [
        ("/mode edit", "Only Ben may change the mode."),
        ("/stop", "Only Ben may end the agent."),
        ("/model opus-4", "Ben has not allowed you to choose the model."),
    ] {
        session.types(typed);
        session.key(KeyCode::Enter);
        assert_eq!(session.key(KeyCode::Enter), None);
        assert!(session.text().contains(said), "{said}:\n{}", session.text());
        session.ctrl('c');
        session.wait(1_500);
    }
    session.host(is_in(Phase::Ended));
    assert!(!session.text().contains("/resume"), "{}", session.text());
    session.types("go");
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(session.text().contains("Only Ben may start the agent of this session again"), "{}", session.text());
}

#[test]
fn a_rejection_is_said_to_the_person_who_reads_it() {
    let of_guest = |level| {
        let mut session = Session::new(80, 20);
        session.level = level;
        session.mine("p1", prompt("mine"));
        let (command_id, key) = ("p1".to_owned(), "mine".to_owned());
        let text = Some("The owner has not allowed this to you.".to_owned());
        let (outcome, code) = (ReceiptOutcome::Rejected, Some(ReceiptCode::NotAllowed));
        session.host(Content::Receipt(Receipt { command_id, key, outcome, code, text }));
        session.from("✗")[0].clone()
    };
    assert_eq!(of_guest(Level::Read), " ✗ Ben has not allowed this to you.");
    assert_eq!(of_guest(Level::Owner), " ✗ This device may not do this.");
}

#[test]
fn a_person_whose_access_is_removed_has_none() {
    let session = Session::new(60, 20);
    let said = |removed| {
        let grant = AccessGrant {
            user: session.ben,
            account: String::new(),
            may: May::Nothing,
            version: 1,
            removed,
            key_epoch: None,
            key: None,
        };
        control(&Control::Access(grant), |_| "Ben".to_owned())
    };
    assert_eq!(said(true), "said that Ben has no access any more");
    assert_eq!(said(false), "said that Ben may only read now");
}

#[test]
fn a_mode_that_is_rejected_is_wanted_no_more() {
    let mut session = Session::new(80, 20);
    session.host(is_in(Phase::Idle));
    assert!(session.key(KeyCode::BackTab).is_some());
    assert!(session.text().contains("ask → edit") && session.screen.stale_at().is_some());
    session.mine("c", Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask })));
    assert!(session.text().contains("ask → edit"));
    session.receipt("c", "mine", ReceiptOutcome::Rejected, Some(ReceiptCode::Unsupported));
    let text = session.text();
    assert!(!text.contains("ask → edit") && text.contains("This agent cannot do it."), "{text}");
    assert_eq!(session.screen.stale_at(), None);
    assert!(session.key(KeyCode::BackTab).is_some(), "another one can be asked for");
    session.wait(5_000);
    assert!(!session.text().contains("ask → edit"), "the machine has not answered");
    session.host(turn(TurnState::Started, None));
}

#[test]
fn what_only_the_owner_may_choose_is_grey_for_others_and_cannot_be_chosen() {
    use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let options = [("once", AllowOnce), ("again", AllowOnce), ("rule", AllowAlways), ("no", RejectOnce)];
    let reason = "Ben is the only one who may choose the grey options.";
    let opened = |level| {
        let mut session = Session::new(70, 24);
        session.level = level;
        session.host(offers(&options));
        session.settle();
        session.key(KeyCode::Tab);
        session.key(KeyCode::Up);
        assert_eq!(session.key(KeyCode::Enter), None);
        session
    };
    let mut guest = opened(Level::Approve);
    assert!(guest.text().contains(reason), "{}", guest.text());
    assert_eq!(guest.key(KeyCode::Down), None);
    assert!(card(&mut guest).contains(&" ›    rule".to_owned()), "{}", guest.text());
    for _ in 0..3 {
        assert_eq!(guest.key(KeyCode::Enter), None, "it is not theirs");
    }
    guest.key(KeyCode::Up);
    assert_eq!(guest.key(KeyCode::Enter), None, "it is asked about once more");
    assert_eq!(guest.key(KeyCode::Enter), chose("r", "digest-1", "again"), "it counts for this request only");
    let mut owner = opened(Level::Owner);
    assert!(!owner.text().contains(reason), "{}", owner.text());
    owner.key(KeyCode::Down);
    owner.key(KeyCode::Enter);
    assert_eq!(owner.key(KeyCode::Enter), chose("r", "digest-1", "rule"));
}
