//! The text field, its keys and commands.

use crossterm::event::{Event, KeyCode, KeyModifiers};
use ensemble_protocol::transcript::body::{Content, State};
use ensemble_protocol::transcript::words::*;

use super::session::{Session, is_in, prompt, state};
use crate::{Action, Level};

fn sends(text: &str, now: bool) -> Option<Action> {
    Some(Action::Prompt { text: text.to_owned(), now })
}

#[test]
fn enter_sends_and_other_keys_make_lines() {
    let mut session = Session::new(60, 20);
    assert_eq!(session.key(KeyCode::Enter), None);
    session.types("one");
    session.press(KeyCode::Enter, KeyModifiers::ALT);
    session.types("two");
    session.ctrl('j');
    session.types("three four");
    session.ctrl('w');
    assert_eq!(session.from("› one")[..3], [" › one", "   two", "   three"]);
    session.ctrl('u');
    session.types("3");
    assert_eq!(session.key(KeyCode::Enter), sends("one\ntwo\n3", false));
    assert_eq!(session.key(KeyCode::Enter), None);
}

#[test]
fn a_paste_keeps_its_lines_and_hides_nothing() {
    let mut session = Session::new(60, 20);
    session.event(Event::Paste("a\r\nb\rc\td\u{1b}[2J\u{202e}\u{a0}e❤\u{fe0f}".to_owned()));
    assert_eq!(session.key(KeyCode::Enter), sends("a\nb\nc\td\\u{1b}[2J\\u{202e} e❤\u{fe0f}", false));
    session.event(Event::Paste("x".repeat(1 << 20)));
    assert!(session.text().contains("too long for a prompt"));
    assert_eq!(session.key(KeyCode::Enter), None);
}

#[test]
fn a_long_text_wraps_and_scrolls_with_its_cursor() {
    let mut session = Session::new(40, 20);
    session.types(&"word ".repeat(100));
    let rows = session.lines().iter().filter(|line| line.contains("word")).count();
    assert_eq!(rows, 5, "a third of what is free");
    session.ctrl('c');
    assert!(!session.text().contains("word"));
    session.types("short");
    assert!(session.text().contains(" › short"));
}

#[test]
fn up_and_down_bring_back_the_own_prompts() {
    let mut session = Session::new(60, 20);
    session.mine("p1", prompt("first\nlines"));
    session.bens("p2", prompt("bens"));
    session.mine("p3", prompt("second"));
    session.types("draft");
    session.wait(30);
    session.key(KeyCode::Up);
    assert!(session.text().contains(" › second"));
    session.wait(30);
    session.key(KeyCode::Up);
    assert!(session.text().contains(" › first\n   lines"));
    session.wait(30);
    session.key(KeyCode::Up);
    assert!(session.text().contains(" › first\n   lines"), "the cursor goes up first");
    session.wait(30);
    session.key(KeyCode::Up);
    assert!(session.text().contains(" › first"), "there is no earlier one");
    session.wait(30);
    session.key(KeyCode::Down);
    session.wait(30);
    session.key(KeyCode::Down);
    assert!(session.text().contains(" › second"));
    session.wait(30);
    session.key(KeyCode::Down);
    assert!(session.text().contains(" › draft"));
}

#[test]
fn the_mouse_wheel_scrolls_and_brings_no_prompt_back() {
    let mut session = Session::new(60, 20);
    for number in 0..40 {
        session.mine(&format!("p{number}"), prompt(&format!("prompt {number}")));
    }
    session.types("draft");
    let newest = session.text();
    for _ in 0..6 {
        session.key(KeyCode::Up);
    }
    let text = session.text();
    assert!(text.contains(" › draft") && !text.contains("prompt 39"), "{text}");
    for _ in 0..8 {
        session.key(KeyCode::Down);
    }
    assert_eq!(session.text(), newest);
}

#[test]
fn steering_is_offered_only_where_the_agent_can_be_steered() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Working));
    session.types("go");
    assert!(!session.text().contains("ctrl-s"));
    assert_eq!(session.ctrl('s'), None);
    assert!(session.text().contains("only after its turn"));
    let mut steered = state(Phase::Working);
    steered.steers = true;
    session.host(Content::State(Box::new(steered.clone())));
    assert!(session.text().contains("ctrl-s: now"));
    assert_eq!(session.ctrl('s'), sends("go", true));
    steered.phase = Phase::Idle;
    session.host(Content::State(Box::new(steered)));
    session.types("go");
    assert_eq!(session.ctrl('s'), sends("go", false), "there is no turn to steer");
}

#[test]
fn a_command_that_outlives_its_turn_is_shown_and_escape_ends_it() {
    let mut session = Session::new(80, 20);
    let left = State { still_running: vec!["npm start".to_owned()], ..state(Phase::Idle) };
    session.host(Content::State(Box::new(left)));
    let text = session.text();
    assert!(text.contains("1 command still runs") && text.contains("esc ends what still runs"), "{text}");
    assert_eq!(session.key(KeyCode::Esc), Some(Action::Interrupt));
}

#[test]
fn escape_and_ctrl_c_interrupt_and_twice_leaves() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Working));
    session.types("text");
    assert_eq!(session.ctrl('c'), None, "it empties the text first");
    assert_eq!(session.ctrl('c'), Some(Action::Interrupt));
    session.wait(500);
    assert_eq!(session.ctrl('c'), Some(Action::Leave));
    session.wait(1_001);
    assert_eq!(session.key(KeyCode::Esc), Some(Action::Interrupt));
    session.wait(500);
    assert_eq!(session.key(KeyCode::Esc), None, "one is on its way");
    session.host(is_in(Phase::Idle));
    session.wait(1_001);
    assert_eq!(session.key(KeyCode::Esc), None, "no turn runs");
    assert_eq!(session.ctrl('c'), None);
    assert!(session.text().contains("Ctrl-c again leaves. The session continues."));
    session.wait(1_001);
    assert_eq!(session.ctrl('c'), None, "too late for the second");
    session.types("x");
    assert_eq!(session.ctrl('d'), None);
    assert!(session.text().contains("Ctrl-d leaves when the field is empty"), "{}", session.text());
    session.ctrl('c');
    assert_eq!(session.ctrl('d'), Some(Action::Leave));
}

#[test]
fn shift_tab_goes_through_the_modes_that_ask() {
    let mut session = Session::new(60, 20);
    let mut now = state(Phase::Idle);
    for (seen, mode) in
        [(Mode::Ask, Mode::Edit), (Mode::Edit, Mode::Plan), (Mode::Plan, Mode::Ask), (Mode::Bypass, Mode::Ask)]
    {
        now.mode = seen.clone();
        session.host(Content::State(Box::new(now.clone())));
        assert_eq!(session.key(KeyCode::BackTab), Some(Action::SetMode { mode: mode.clone(), seen: seen.clone() }));
        assert_eq!(session.key(KeyCode::BackTab), None, "one is on its way");
        assert!(session.text().contains(&format!("{} → {}", seen.as_str(), mode.as_str())));
    }
    session.level = Level::Approve;
    session.host(is_in(Phase::Idle));
    assert_eq!(session.key(KeyCode::BackTab), None);
    assert!(session.text().contains("Only Ben may change the mode."));
}

#[test]
fn commands_are_offered_completed_and_carried_out() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Idle));
    session.types("/");
    let text = session.text();
    for part in ["› /mode", "/model", "/stop", "/resume"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    session.types("mod");
    session.key(KeyCode::Down);
    session.key(KeyCode::Tab);
    assert!(session.text().contains(" › /model"));
    assert!(session.text().contains("/model opus-4  Opus"), "{}", session.text());
    session.key(KeyCode::Tab);
    assert_eq!(session.key(KeyCode::Enter), Some(Action::SetModel("opus-4".to_owned())));
    for (text, action) in [
        ("/mode bypass", Action::SetMode { mode: Mode::Bypass, seen: Mode::Ask }),
        ("/stop", Action::Stop),
        ("/resume", Action::Resume),
        ("/leave", Action::Leave),
        ("/exit", Action::Leave),
        ("/quit", Action::Leave),
        ("/compact", Action::Prompt { text: "/compact".to_owned(), now: false }),
        ("/etc/hosts is wrong", Action::Prompt { text: "/etc/hosts is wrong".to_owned(), now: false }),
        (" /nothing", Action::Prompt { text: " /nothing".to_owned(), now: false }),
    ] {
        session.types(text);
        assert_eq!(session.key(KeyCode::Enter), Some(action), "{text}");
    }
    for (text, notice) in [
        ("/mode dance", "There is no mode dance."),
        ("/nothing", "There is no command /nothing."),
        ("/model x", "There is no model x."),
    ] {
        session.types(text);
        assert_eq!(session.key(KeyCode::Enter), None);
        assert!(session.text().contains(notice), "{notice}:\n{}", session.text());
        session.ctrl('c');
    }
}

#[test]
fn enter_completes_a_command_that_is_half_written() {
    let mut session = Session::new(60, 20);
    session.types("/st");
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(session.text().contains(" › /stop"));
    assert_eq!(session.key(KeyCode::Enter), Some(Action::Stop));
}

#[test]
fn help_shows_the_keys_and_any_key_closes_it() {
    let mut session = Session::new(100, 30);
    session.types("?");
    let text = session.text();
    assert!(text.contains("interrupt; end what") && text.contains("ctrl-left, ctrl-right"), "{text}");
    session.types("x");
    assert!(!session.text().contains("interrupt; end what"));
    session.types("a?");
    assert!(session.text().contains(" › a?"));
}

#[test]
fn on_a_narrow_screen_the_help_is_whole_and_a_long_list_says_so() {
    let mut session = Session::new(40, 70);
    session.types("?");
    let text = session.text().split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["alt-enter, ctrl-j a new line", "esc interrupt; end what still runs", "ctrl-left, ctrl-right move by words"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    session.types("x/");
    session.host(is_in(Phase::Idle));
    let text = session.text();
    assert!(text.contains("› /mode") && text.contains("  1 of 8"), "{text}");
}

#[test]
fn an_agent_that_has_lost_the_conversation_gets_the_last_messages() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Idle));
    session.types("/insert");
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(session.text().contains("Nothing was said yet."));
    session.mine("p", prompt("Where is it?"));
    session.host(super::session::text(0, "In the barn.\nBehind the door."));
    session.types("/insert");
    assert_eq!(session.key(KeyCode::Enter), None);
    session.types("Go on.");
    let Some(Action::Prompt { text, .. }) = session.key(KeyCode::Enter) else { panic!("no prompt") };
    assert!(text.contains("A person:\n> Where is it?\n"), "{text}");
    assert!(text.ends_with("You:\n> In the barn.\n> Behind the door.\n\nGo on."), "{text}");
}

#[test]
fn a_prompt_to_an_ended_session_stays_here() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Ended));
    session.types("go");
    assert_eq!(session.key(KeyCode::Enter), None);
    let text = session.text();
    assert!(text.contains("/resume starts the agent again") && text.contains(" › go"), "{text}");
}
