//! A digit answers a card when it stands alone, and arrows answer without one.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ensemble_protocol::transcript::words::OptionKind;

use super::cards::{card, chose, offers};
use super::session::{Session, asks};
use crate::{Action, Level};

fn asked(width: u16, height: u16) -> Session {
    let mut session = Session::new(width, height);
    session.host(asks("r", "rm -rf build"));
    session.settle();
    session
}

fn digit(session: &mut Session, digit: char) -> Option<Action> {
    session.press(KeyCode::Char(digit), KeyModifiers::NONE)
}

#[test]
fn a_digit_counts_when_no_key_follows() {
    let mut session = asked(60, 20);
    assert_eq!(digit(&mut session, '1'), None, "another key may follow");
    session.wait(249);
    assert_eq!(session.due(), None);
    session.wait(1);
    assert_eq!(session.due(), chose("r", "digest-1", "once"));
    assert_eq!(session.due(), None, "once");
}

#[test]
fn a_sentence_that_begins_with_a_digit_is_text() {
    for text in ["1 more thing", "2nd try", "3", "4 tests fail", "11", "2\t"] {
        for wait in [0, 100, 249] {
            let mut session = asked(60, 20);
            for letter in text.chars() {
                let key = if letter == '\t' { KeyCode::Tab } else { KeyCode::Char(letter) };
                assert_eq!(session.press(key, KeyModifiers::NONE), None, "{text}");
                session.wait(wait);
                assert_eq!(session.due(), None, "{text}");
            }
            session.press(KeyCode::Char('x'), KeyModifiers::NONE);
            session.wait(5_000);
            assert_eq!(session.due(), None, "{text}");
            assert!(session.text().contains(&format!("› {}x", text.trim_end())), "{}", session.text());
        }
    }
}

#[test]
fn a_digit_before_a_paste_or_of_a_key_that_is_held_is_text() {
    let mut session = asked(60, 20);
    digit(&mut session, '1');
    session.event(Event::Paste(" thing".to_owned()));
    session.wait(1_000);
    assert_eq!(session.due(), None);
    assert!(session.text().contains("› 1 thing"));
    let mut session = asked(60, 20);
    let held = KeyEvent { kind: KeyEventKind::Repeat, ..KeyEvent::new(KeyCode::Char('1'), KeyModifiers::NONE) };
    session.event(Event::Key(held));
    session.wait(1_000);
    assert_eq!(session.due(), None);
    assert!(session.text().contains("› 1"));
}

#[test]
fn a_digit_is_of_the_card_that_it_was_pressed_for() {
    let mut session = asked(60, 20);
    session.host(asks("second", "ls"));
    session.draw();
    digit(&mut session, '1');
    let ben = session.ben;
    session.host(super::session::resolved("r", "no", ben));
    session.draw();
    session.wait(2_000);
    assert_eq!(session.due(), None, "the second card was not meant");
    assert!(session.text().contains("› 1"), "{}", session.text());
}

#[test]
fn arrows_and_enter_choose_after_tab() {
    use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let options = [("once", AllowOnce), ("rule", AllowAlways), ("no", RejectOnce), ("stop", RejectOnce)];
    for (downs, id) in [(0, "once"), (1, "no"), (2, "stop")] {
        let mut session = Session::new(60, 20);
        session.host(offers(&options));
        session.draw();
        session.key(KeyCode::Tab);
        assert!(card(&mut session).contains(&" › 1  once".to_owned()), "{}", session.text());
        assert_eq!(session.key(KeyCode::Enter), None, "it has just appeared");
        session.settle();
        for _ in 0..downs {
            assert_eq!(session.key(KeyCode::Down), None);
        }
        assert_eq!(session.key(KeyCode::Enter), chose("r", "digest-1", id));
    }
    let mut session = Session::new(60, 20);
    session.host(offers(&options));
    session.settle();
    assert_eq!(session.key(KeyCode::Enter), None, "without tab enter chooses nothing");
    session.key(KeyCode::Tab);
    session.key(KeyCode::Up);
    assert!(card(&mut session).contains(&" › 4  What reaches further than this request".to_owned()));
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(card(&mut session).contains(&" ›    rule".to_owned()), "{}", session.text());
    assert_eq!(session.key(KeyCode::Enter), None, "it is asked about once more");
    assert_eq!(session.key(KeyCode::Enter), chose("r", "digest-1", "rule"));
    let mut session = asked(60, 20);
    session.key(KeyCode::Tab);
    assert_eq!(session.key(KeyCode::Esc), None, "it leaves the options");
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(card(&mut session).contains(&"   1  Allow once".to_owned()));
}

#[test]
fn tab_answers_nothing_that_was_not_on_the_screen() {
    let mut session = Session::new(40, 9);
    session.host(asks("r", &"a long line\n".repeat(40)));
    session.settle();
    session.key(KeyCode::Tab);
    session.settle();
    assert_eq!(session.key(KeyCode::Enter), None, "{}", session.text());
    session.key(KeyCode::Up);
    session.settle();
    session.key(KeyCode::Down);
    session.settle();
    assert_eq!(session.key(KeyCode::Enter), chose("r", "digest-1", "once"), "its end was shown");
    let mut session = Session::new(60, 20);
    session.level = Level::Prompt;
    session.host(asks("r", "ls"));
    session.settle();
    session.key(KeyCode::Tab);
    assert_eq!(session.key(KeyCode::Enter), None, "it is not theirs to answer");
}
