//! Requests of the agent: what is shown, and which key does what, and when.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyModifiers};
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use super::session::{Session, asks, diff, is_in, option, permission, prompt, resolved, text};
use crate::{Action, Level};

pub(super) fn chose(id: &str, digest: &str, option: &str) -> Option<Action> {
    let (request_id, digest, option_id) = (id.to_owned(), digest.to_owned(), Some(option.to_owned()));
    Some(Action::Answer { request_id, digest, option_id, answers: None, message: None })
}

pub(super) fn card(session: &mut Session) -> Vec<String> {
    let mut lines = session.lines();
    let begin = lines.iter().position(|line| line.starts_with(" ─ permission") || line.starts_with(" ─ question"));
    lines.drain(..begin.unwrap());
    let end = lines.iter().skip(1).position(|line| line.starts_with(" ─")).unwrap();
    lines.drain(1..=end).collect()
}

#[test]
fn each_option_has_a_key_and_its_own_name() {
    for (keys, id) in [("1", "once"), ("2", "no"), ("4\n\n", "always")] {
        let mut session = Session::new(60, 20);
        session.host(asks("r", "ls -l\nin /home"));
        let lines = [
            " Run a command",
            "   ls -l",
            "   in /home",
            "   1  Allow once",
            "   2  Deny",
            "   4  What reaches further than this request",
        ];
        assert_eq!(card(&mut session), lines);
        session.wait(1_001);
        let pressed = |key: char| if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
        let mut chosen = None;
        for key in keys.chars() {
            assert_eq!(chosen, None, "{keys}");
            chosen = session.key(pressed(key));
            session.draw();
        }
        assert_eq!(chosen, chose("r", "digest-1", id), "{keys}");
        assert!(session.text().contains("Your answer is sent."));
        assert_eq!(session.key(KeyCode::Char('1')), None, "it is answered once");
    }
}

/// A request with these options, each with its kind.
pub(super) fn offers(options: &[(&str, OptionKind)]) -> Content {
    let mut offers = permission("r", "rm -rf build");
    offers.options = options.iter().map(|(id, kind)| option(id, id, kind.clone())).collect();
    Content::Permission(Box::new(offers))
}

#[test]
fn the_number_of_a_refusal_does_not_move() {
    use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let few = [("once", AllowOnce), ("no", RejectOnce), ("stop", RejectOnce)];
    let some = [("once", AllowOnce), ("rule", AllowAlways), ("no", RejectOnce), ("stop", RejectOnce)];
    let many = [
        ("once", AllowOnce),
        ("rule", AllowAlways),
        ("folder", AllowAlways),
        ("mode", AllowAlways),
        ("no", RejectOnce),
        ("stop", RejectOnce),
    ];
    for options in [&few[..], &some, &many] {
        for (digit, id) in [('1', "once"), ('2', "no"), ('3', "stop")] {
            let mut session = Session::new(60, 20);
            session.host(offers(options));
            session.draw();
            session.wait(1_001);
            assert_eq!(session.key(KeyCode::Char(digit)), chose("r", "digest-1", id), "{options:?}");
        }
        // No other digit answers, and no letter.
        let mut session = Session::new(60, 20);
        session.host(offers(options));
        session.draw();
        session.wait(1_001);
        for key in "456789yna".chars() {
            assert_eq!(session.key(KeyCode::Char(key)), None, "{key}");
            session.press(KeyCode::Esc, KeyModifiers::NONE);
            session.ctrl('c');
            session.wait(1_501);
        }
    }
}

#[test]
fn what_reaches_further_is_asked_about_once_more() {
    use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
    let mut session = Session::new(60, 20);
    session.host(offers(&[("once", AllowOnce), ("rule", AllowAlways), ("mode", AllowAlways), ("no", RejectOnce)]));
    session.draw();
    session.wait(1_001);
    assert_eq!(session.key(KeyCode::Char('4')), None);
    let open = ["   1  once", "   2  no", " ›    rule", "      mode", "   up, down and enter choose, esc closes"];
    assert_eq!(card(&mut session)[2..], open);
    session.key(KeyCode::Down);
    assert_eq!(session.key(KeyCode::Enter), None, "once is not enough");
    assert!(card(&mut session).join(" ").contains("Enter again"));
    // Another one needs its own confirmation.
    session.key(KeyCode::Up);
    assert_eq!(session.key(KeyCode::Enter), None);
    assert_eq!(session.key(KeyCode::Esc), None, "it closes the list and interrupts nothing");
    assert!(card(&mut session).contains(&"   4  What reaches further than this request".to_owned()));
    session.key(KeyCode::Char('4'));
    session.key(KeyCode::Down);
    session.key(KeyCode::Enter);
    assert_eq!(session.key(KeyCode::Enter), chose("r", "digest-1", "mode"));
}

#[test]
fn a_card_takes_no_key_that_was_typed_as_it_appeared() {
    let mut session = Session::new(60, 20);
    session.draw();
    session.host(asks("r", "rm -r /"));
    session.types("1");
    session.draw();
    assert!(session.text().contains("› 1"), "it was not shown, so the key is text");
    session.key(KeyCode::Backspace);
    session.wait(999);
    session.types("y");
    session.key(KeyCode::Backspace);
    session.wait(999);
    session.types("1");
    session.ctrl('c');
    session.wait(1_501);
    assert_eq!(session.key(KeyCode::Char('1')), chose("r", "digest-1", "once"));
}

#[test]
fn keys_are_text_while_there_is_text() {
    let mut session = Session::new(60, 20);
    session.types("run ");
    session.host(asks("r", "ls"));
    session.settle();
    session.types("1 y n 3");
    assert!(session.text().contains("› run 1 y n 3"));
    assert_eq!(session.key(KeyCode::Enter), Some(Action::Prompt { text: "run 1 y n 3".to_owned(), now: false }));
    session.types("use pnpm");
    session.wait(1_501);
    let with_text = session.press(KeyCode::Char('2'), KeyModifiers::ALT);
    let Some(Action::Answer { option_id, message, .. }) = with_text else { panic!("{with_text:?}") };
    assert_eq!((option_id.as_deref(), message.as_deref()), (Some("no"), Some("use pnpm")));
}

#[test]
fn the_next_card_waits_as_well() {
    let mut session = Session::new(60, 20);
    session.host(asks("r1", "one"));
    session.host(asks("r2", "two"));
    session.settle();
    assert!(session.text().contains("permission 1 of 2"));
    assert_eq!(session.key(KeyCode::Char('1')), chose("r1", "digest-1", "once"));
    session.draw();
    assert!(session.text().contains("permission 2 of 2"));
    session.types("y");
    session.key(KeyCode::Backspace);
    session.wait(1_501);
    let next = |session: &mut Session| {
        session.key(KeyCode::Tab);
        session.settle();
    };
    // The card of the answer that is on its way has no options to move to.
    next(&mut session);
    next(&mut session);
    assert!(card(&mut session).join("\n").contains("one"));
    next(&mut session);
    assert_eq!(session.key(KeyCode::Char('2')), chose("r2", "digest-2", "no"));
}

#[test]
fn a_card_closes_when_another_person_answers() {
    let mut session = Session::new(60, 20);
    session.host(asks("r", "ls"));
    session.settle();
    let ben = session.ben;
    session.host(resolved("r", "no", ben));
    assert_eq!(session.key(KeyCode::Char('1')), None, "it is closed although the frame still shows it");
    session.ctrl('c');
    let text = session.text();
    assert!(text.contains(" ✗ Run a command · Deny · Ben"), "{text}");
    assert!(!text.contains("permission"), "{text}");
}

#[test]
fn an_answer_is_shown_at_once() {
    let mut session = Session::new(60, 20);
    let answer = |answers, message: Option<&str>| {
        let (request_id, digest, message) = ("r".to_owned(), "d".to_owned(), message.map(str::to_owned));
        Content::Answer(Answer { request_id, digest, option_id: None, answers, message })
    };
    session.bens("a1", answer(None, None));
    session.bens("a2", answer(Some(BTreeMap::from([("q".to_owned(), vec!["Blue".to_owned()])])), None));
    session.bens("a3", answer(None, Some("use pnpm")));
    let not_yet = [
        " · Ben answered (not taken yet)",
        " · Ben answered: Blue (not taken yet)",
        " · Ben answered: use pnpm (not taken yet)",
    ];
    assert_eq!(session.from("· Ben"), not_yet);
    for id in ["a1", "a2", "a3"] {
        session.receipt(id, "bens", ReceiptOutcome::Done, None);
    }
    assert_eq!(session.from("· Ben"), [" · Ben answered: Blue", " · Ben answered: use pnpm"]);
}

#[test]
fn a_rejected_answer_opens_the_card_again() {
    let mut session = Session::new(60, 20);
    session.host(asks("r", "ls"));
    session.settle();
    assert!(session.key(KeyCode::Char('1')).is_some());
    let (request_id, digest, option_id) = ("r".to_owned(), "digest-1".to_owned(), Some("once".to_owned()));
    session.mine("a1", Content::Answer(Answer { request_id, digest, option_id, answers: None, message: None }));
    assert_eq!(session.key(KeyCode::Char('1')), None);
    session.ctrl('c');
    session.receipt("a1", "mine", ReceiptOutcome::Rejected, Some(ReceiptCode::Busy));
    session.settle();
    let text = session.text();
    assert!(text.contains(" ✗ your answer was not taken: Too many commands."), "{text}");
    assert_eq!(session.key(KeyCode::Char('2')), chose("r", "digest-1", "no"));
}

#[test]
fn an_action_that_was_not_sent_comes_back() {
    let mut session = Session::new(60, 20);
    session.host(asks("r", "ls"));
    session.settle();
    let answer = session.key(KeyCode::Char('1')).unwrap();
    session.screen.not_sent(answer, "The server cannot be reached.");
    session.settle();
    assert!(session.text().contains("The server cannot be reached."));
    assert_eq!(session.key(KeyCode::Char('1')), chose("r", "digest-1", "once"));
    session.types("hello");
    let prompt = session.key(KeyCode::Enter).unwrap();
    session.screen.not_sent(prompt, "no");
    assert!(session.text().contains("› hello"));
}

#[test]
fn a_long_detail_is_whole_and_scrolls() {
    let mut session = Session::new(60, 20);
    let detail: Vec<String> = (1..=100).map(|line| format!("line {line}")).collect();
    session.host(asks("r", &detail.join("\n")));
    session.settle();
    let lines = card(&mut session);
    assert!(lines.iter().any(|line| line.contains("of 101 lines  ↑ ↓ space")), "{lines:?}");
    assert!(lines.iter().any(|line| line == "   2  Deny"), "the options are always there");
    let mut seen = Vec::new();
    for _ in 0..60 {
        seen.extend(card(&mut session).into_iter().filter(|line| line.starts_with("   line ")));
        session.key(KeyCode::Char(' '));
    }
    seen.dedup();
    for line in &detail {
        assert!(seen.contains(&format!("   {line}")), "{line} was never shown");
    }
    session.types("text");
    let before = card(&mut session);
    assert!(before.iter().any(|line| line.contains("alt-↑ alt-↓")), "{before:?}");
    session.press(KeyCode::Up, KeyModifiers::ALT);
    assert_ne!(card(&mut session), before);
    session.ctrl('c');
    session.wait(1_501);
    assert_eq!(session.key(KeyCode::Char('1')), chose("r", "digest-1", "once"));
}

#[test]
fn a_cut_detail_says_so_and_can_only_be_refused() {
    let mut session = Session::new(60, 20);
    let mut cut = permission("r", "rm -r x");
    cut.cut = Some(12_345);
    session.host(Content::Permission(Box::new(cut)));
    session.settle();
    let lines = card(&mut session);
    assert!(lines.contains(&" ! 12345 bytes of this request are missing. It can only be".to_owned()), "{lines:?}");
    assert!(lines.contains(&"   2  Deny".to_owned()) && !lines.join("").contains("Allow"), "{lines:?}");
    session.types("y");
    session.ctrl('c');
    session.wait(1_501);
    assert_eq!(session.key(KeyCode::Char('1')), None);
    session.ctrl('c');
    session.wait(1_501);
    assert_eq!(session.key(KeyCode::Char('2')), chose("r", "digest-1", "no"));
}

#[test]
fn what_is_asked_stands_once() {
    let mut session = Session::new(60, 20);
    let mut command = permission("r", "Bash\ncommand: rm -rf build\ndescription: Clean up");
    command.title = "rm -rf build".to_owned();
    session.host(Content::Permission(Box::new(command)));
    let lines = card(&mut session);
    assert_eq!(lines[..4], ["   Bash", "   command: rm -rf build", "   description: Clean up", "   1  Allow once"]);
}

#[test]
fn an_edit_shows_its_diff_and_the_whole_request() {
    let mut session = Session::new(60, 24);
    let mut edit = permission("r", "Edit\nold: two\nnew: 2");
    edit.content = vec![diff()];
    session.host(Content::Permission(Box::new(edit)));
    let text = card(&mut session).join("\n");
    assert!(text.contains("   - two\n   + 2\n     three\n The whole request:\n   Edit\n"), "{text}");
}

#[test]
fn hidden_characters_of_a_request_are_written_out() {
    let mut session = Session::new(60, 24);
    let mut evil = permission("r", "rm\u{200b} x\u{202e}y\u{1b}[2Kz\u{fe0f}");
    evil.title = "Run\u{1b}[1A".to_owned();
    evil.options = vec![option("a", "Deny\u{202e}", OptionKind::RejectOnce)];
    session.host(Content::Permission(Box::new(evil)));
    let lines = [" Run\\u{1b}[1A", "   rm\\u{200b} x\\u{202e}y\\u{1b}[2Kz\\u{fe0f}", "   2  Deny\\u{202e}"];
    assert_eq!(card(&mut session), lines);
}

#[test]
fn options_fit_no_screen_and_still_nothing_is_lost() {
    let mut session = Session::new(40, 10);
    let mut wide = permission("r", "ls");
    wide.options = (0..12)
        .map(|at| option(&format!("o{at}"), &format!("{at} {}", "name ".repeat(20)), OptionKind::AllowAlways))
        .collect();
    session.host(Content::Permission(Box::new(wide)));
    session.settle();
    session.types("1");
    session.ctrl('c');
    session.wait(1_501);
    session.key(KeyCode::Char('4'));
    let mut seen = String::new();
    for _ in 0..11 {
        seen.push_str(&card(&mut session).join("\n"));
        session.key(KeyCode::Down);
    }
    seen.push_str(&card(&mut session).join("\n"));
    assert!((0..12).all(|at| seen.contains(&format!("›    {at} name"))), "{seen}");
    session.key(KeyCode::Enter);
    session.draw();
    assert_eq!(session.key(KeyCode::Enter), chose("r", "digest-1", "o11"));
}

#[test]
fn who_may_not_answer_sees_the_card_without_keys() {
    let mut session = Session::new(60, 20);
    session.level = Level::Prompt;
    session.host(asks("r", "ls"));
    session.settle();
    let lines = card(&mut session);
    assert!(lines.contains(&"      Allow once".to_owned()), "{lines:?}");
    assert!(lines.contains(&"   Ben answers this, not you.".to_owned()), "{lines:?}");
    session.types("1y");
}

#[test]
fn the_transcript_stays_in_view_above_a_card() {
    let mut session = Session::new(60, 20);
    session.bens("p", prompt("go"));
    session.receipt("p", "bens", ReceiptOutcome::Done, None);
    session.host(text(0, "the newest words"));
    session.host(is_in(Phase::Waiting));
    let detail: Vec<String> = (1..=100).map(|line| format!("line {line}")).collect();
    session.host(asks("r", &detail.join("\n")));
    assert!(session.text().contains("the newest words"));
}
