//! Prompts, texts, tools and hostile messages.

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::view::{Author, Incoming, Keep, View};
use ensemble_protocol::transcript::words::*;
use ratatui_core::style::{Color, Modifier};

use super::session::{Session, diff, is_in, part_of, prompt, text, tool, turn};
use crate::{Connection, Level, Look, Screen};

#[test]
fn a_screen_of_100_columns_shows_everything() {
    let mut session = Session::new(100, 30);
    session.bens("p1", prompt("Fix the parser.\nPlease."));
    session.receipt("p1", "bens", ReceiptOutcome::Done, None);
    session.host(turn(TurnState::Started, None));
    session.host(is_in(Phase::Working));
    session.host(Content::Thought(part_of(0, "**Look** at it\nfirst")));
    session.host(text(1, "# Plan\nI *read* `a.rs`."));
    session.host(tool("Edit a.rs", ToolStatus::Completed, vec![diff()]));
    session.frame(2, 0, "Now I");
    let expected = [
        " Fix it · ~/app (main)",
        " Ben",
        " │ Fix the parser.",
        " │ Please.",
        " ∴ Look at it",
        " Plan",
        " I read a.rs.",
        " ✓ Edit a.rs  +1 -1",
        " Now I",
    ];
    let lines = session.lines();
    assert_eq!(&lines[..9], expected);
    assert!(lines[9].starts_with(" ─ working ───") && lines[9].ends_with(" esc interrupts ─"), "{}", lines[9]);
    assert_eq!(lines[10], " ›");
    assert!(lines[11].starts_with(" sonnet · ask · 34% context · $0.42 · online   "), "{}", lines[11]);
    assert!(lines[11].ends_with("?: help"));
}

#[test]
fn a_text_grows_and_shows_where_something_is_missing() {
    let mut session = Session::new(60, 20);
    session.host(turn(TurnState::Started, None));
    session.frame(0, 0, "Hel");
    assert_eq!(session.lines()[1], " Hel");
    session.frame(0, 2, "llo");
    assert_eq!(session.lines()[1], " Hello");
    session.frame(0, 9, "world");
    assert_eq!(session.lines()[1], " Hello…world");
    session.host(text(0, "Hello my world"));
    assert_eq!(session.lines()[1], " Hello my world");
}

#[test]
fn a_text_in_several_messages_is_one() {
    let mut session = Session::new(60, 20);
    session.host(text(0, "one"));
    session.host(Content::Text(TextPart { of: Some(0), ..part_of(1, "two") }));
    session.host(text(2, "three"));
    let buffer = session.draw();
    let row =
        |at: u16| buffer.content()[usize::from(at) * 60..][..6].iter().map(|cell| cell.symbol()).collect::<String>();
    let first = (0..20).find(|at| row(*at).starts_with(" one")).unwrap();
    assert_eq!([1, 2, 3].map(|at| row(first + at)), [" two  ", "      ", " three"]);
}

#[test]
fn a_tool_shows_the_beginning_of_its_output_until_it_is_unfolded() {
    let mut session = Session::new(60, 20);
    session.host(turn(TurnState::Started, None));
    session.host(tool("cargo test", ToolStatus::InProgress, Vec::new()));
    session.frame(7, 0, "one\ntwo\nthree\nfour\n");
    assert_eq!(session.from("⋯"), [" ⋯ cargo test", "   two", "   three", "   four"]);
    let exit_status = Some(ExitStatus { exit_code: Some(101), signal: None });
    let output = "\u{1b}[31mFAILED\u{1b}[0m\nend".to_owned();
    let terminal = Terminal { terminal_id: "x".to_owned(), output, cut: Some(9), exit_status };
    session.host(tool("cargo test", ToolStatus::Failed, vec![ToolContent::Terminal(terminal)]));
    assert_eq!(session.from("✗"), [" ✗ cargo test  exit 101", "   FAILED", "   end"]);
    session.ctrl('o');
    let all = [" ✗ cargo test  exit 101", "   … 9 bytes are missing here", "   FAILED", "   end"];
    assert_eq!(session.from("✗"), all);
    session.ctrl('o');
    let output = (1..=5).map(|line| format!("line {line}\n")).collect();
    let terminal = Terminal { terminal_id: "x".to_owned(), output, cut: None, exit_status: None };
    session.host(tool("cargo test", ToolStatus::Completed, vec![ToolContent::Terminal(terminal)]));
    let folded = [" ✓ cargo test", "   line 1", "   line 2", "   line 3", "   … 2 more lines (ctrl-o)"];
    assert_eq!(session.from("✓"), folded);
}

#[test]
fn a_diff_has_colours_and_marks() {
    let mut session = Session::new(60, 20);
    session.host(tool("Edit", ToolStatus::Completed, vec![diff()]));
    session.ctrl('o');
    let all = [" ✓ Edit  +1 -1", "   a.rs", "     one", "   - two", "   + 2", "     three"];
    assert_eq!(session.from("✓"), all);
    let buffer = session.draw();
    let colour_of = |symbol: &str| {
        let cells = buffer.content().iter().filter(|cell| cell.symbol() == symbol && cell.fg != Color::Reset);
        cells.map(|cell| cell.fg).next_back()
    };
    assert_eq!((colour_of("+"), colour_of("w")), (Some(Color::Green), Some(Color::Red)));
}

#[test]
fn without_colour_and_unicode_everything_is_still_there() {
    let mut session = Session::new(60, 20);
    session.screen = Screen::new(Look { colour: false, unicode: false });
    session.bens("p", prompt("go"));
    session.host(is_in(Phase::Working));
    session.host(tool("Edit", ToolStatus::Completed, vec![diff()]));
    session.ctrl('o');
    let buffer = session.draw();
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let text = session.text();
    assert!(text.is_ascii(), "{text}");
    for part in [" | go", " v Edit  +1 -1", "   - two", "   + 2"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn prompts_have_names_and_what_became_of_them() {
    let mut session = Session::new(60, 20);
    session.mine("p1", prompt("mine"));
    session.bens("p2", prompt("bens"));
    assert_eq!(session.from("you"), [" you · not taken yet", " │ mine", " Ben · not taken yet", " │ bens"]);
    session.receipt("p1", "mine", ReceiptOutcome::Queued, None);
    session.receipt("p2", "bens", ReceiptOutcome::Rejected, Some(ReceiptCode::NotAllowed));
    let rejected = [" Ben · not taken", " │ bens", " ✗ You have not allowed this to Ben.", " you · queued", " │ mine"];
    assert_eq!(session.from("Ben"), rejected);
    session.receipt("p1", "mine", ReceiptOutcome::Done, None);
    assert_eq!(session.from("you")[0], " you");
}

#[test]
fn what_is_not_a_text_is_a_line() {
    let mut session = Session::new(60, 20);
    session.bens("c1", Content::Control(Control::Interrupt));
    session.receipt("c1", "bens", ReceiptOutcome::Done, None);
    session.host(turn(TurnState::Ended, Some(StopReason::Cancelled)));
    let (code, text) = (ErrorCode::Login, "run /login".to_owned());
    session.host(Content::Error(Failure { code, text, retry_at: None }));
    session.host(Content::Newer("dance".into()));
    let lines = [
        " · Ben interrupted",
        " ⊘ interrupted · Ben",
        " ✗ The agent is not signed in: run /login",
        " · something newer (dance)",
    ];
    assert_eq!(session.from("· Ben"), lines);
}

#[test]
fn a_line_of_a_megabyte_can_be_scrolled_through() {
    let mut session = Session::new(60, 20);
    session.bens("p0", prompt("before"));
    session.host(turn(TurnState::Started, None));
    session.host(text(0, &format!("{}end", "x".repeat(1 << 20))));
    assert!(session.text().contains("xend"));
    assert_eq!(session.screen.transcript.cache.wrapped, 1, "the prompt above is not seen and not wrapped");
    session.key(KeyCode::PageUp);
    assert!(!session.text().contains("xend"));
    session.key(KeyCode::PageDown);
    assert!(session.text().contains("xend"));
}

#[test]
fn a_new_message_costs_the_same_however_many_came_before() {
    let mut session = Session::new(60, 20);
    session.view = View::new(Keep { items: 5_000, bytes: 32 << 20 });
    for number in 0..2_000 {
        session.host(text(number, &format!("line {number}")));
    }
    session.draw();
    let first = session.screen.transcript.cache.wrapped;
    assert!(first <= 20, "{first} items were wrapped for the first frame");
    session.host(text(2_000, "the newest"));
    assert!(session.text().contains("the newest"));
    assert_eq!(session.screen.transcript.cache.wrapped, first + 1);
    session.types("hello");
    session.draw();
    assert_eq!(session.screen.transcript.cache.wrapped, first + 1, "typing wraps nothing");
}

#[test]
fn what_is_scrolled_to_stays_while_messages_come() {
    let mut session = Session::new(60, 20);
    for number in 0..40 {
        session.host(text(number, &format!("line {number}")));
    }
    session.draw();
    session.key(KeyCode::PageUp);
    let before = session.lines();
    assert!(!before.join("\n").contains("line 39"));
    session.host(text(40, "newer"));
    session.host(text(41, "newest"));
    let after = session.lines();
    assert_eq!(before[..8], after[..8]);
    assert!(after.join("\n").contains("2 new · pgdn: down"), "{}", after.join("\n"));
    session.key(KeyCode::PageDown);
    session.key(KeyCode::PageDown);
    assert!(session.text().contains("newest"));
    assert!(!session.text().contains("pgdn"));
}

#[test]
fn the_top_asks_for_older_messages_once() {
    let mut session = Session::new(60, 20);
    for number in 0..40 {
        session.host(text(number, &format!("line {number}")));
    }
    session.draw();
    assert!(!session.screen.wants_older());
    for _ in 0..20 {
        session.key(KeyCode::PageUp);
        session.draw();
    }
    assert!(session.lines()[1].contains("line 0"), "{}", session.text());
    assert!(session.screen.wants_older());
    session.draw();
    assert!(!session.screen.wants_older());
}

#[test]
fn notes_say_who_did_not_sign() {
    let mut session = Session::new(60, 20);
    let author = Author::Unknown("not signed by a device of Ann".to_owned());
    let message = Err(BadBody::Malformed(String::new()));
    session.view.message(Incoming { seq: 1, author, digest: String::new(), message });
    assert_eq!(session.lines()[1], " ! not signed by a device of Ann");
}

#[test]
fn a_plan_is_a_line_or_a_list() {
    let mut session = Session::new(60, 20);
    let entry = |content: &str, status| PlanEntry { content: content.to_owned(), priority: PlanPriority::Low, status };
    let entries = vec![entry("Read", PlanStatus::Completed), entry("Write", PlanStatus::InProgress)];
    session.host(Content::Plan(Plan { entries }));
    assert_eq!(session.from("plan"), [" plan 1/2 · Write"]);
    session.ctrl('t');
    assert_eq!(session.from("plan"), [" plan 1/2", " ✓ Read", " ⋯ Write"]);
}

#[test]
fn a_small_screen_keeps_what_matters() {
    let mut session = Session::new(40, 10);
    session.connection = Connection::MachineAway;
    session.host(is_in(Phase::Working));
    session.host(text(0, "A text that is longer than forty columns are."));
    let expected = [
        " A text that is longer than forty",
        " columns are.",
        " ─ working ─────────── esc interrupts ─",
        " ›",
        " sonnet · ask · the machine is away",
    ];
    assert_eq!(session.lines(), expected);
    session.connection = Connection::AgentStopped;
    assert_eq!(session.lines()[4], " sonnet · ask · disk not writable");
    session.connection = Connection::CannotWrite;
    assert_eq!(session.lines()[4], " sonnet · ask · the machine cannot send");
    for (width, height) in [(1, 1), (19, 5), (20, 6), (22, 7)] {
        let mut session = Session::new(width, height);
        session.host(is_in(Phase::Waiting));
        session.host(super::session::asks("r", "ls"));
        session.draw();
    }
}

#[test]
fn an_address_that_holds_live_text_back_is_no_error() {
    let mut session = Session::new(60, 10);
    session.connection = Connection::HeldBack;
    session.host(is_in(Phase::Working));
    let last = session.lines().pop().unwrap();
    assert!(last.starts_with(" sonnet · ask · This address holds live text back"), "{last}");
}

#[test]
fn who_may_only_read_has_no_text_field() {
    let mut session = Session::new(60, 20);
    session.level = Level::Read;
    session.host(is_in(Phase::Working));
    session.types("xyz");
    assert_eq!(session.key(KeyCode::Esc), None);
    assert!(session.text().contains("You may read this session."));
    assert_eq!(session.key(KeyCode::Char('q')), Some(crate::Action::Leave));
}

#[test]
fn thoughts_are_dim_and_folded() {
    let mut session = Session::new(60, 20);
    session.host(Content::Thought(part_of(0, "first\nsecond")));
    assert_eq!(session.from("∴"), [" ∴ first"]);
    let buffer = session.draw();
    let cell = buffer.content().iter().find(|cell| cell.symbol() == "∴").unwrap();
    assert!(cell.modifier.contains(Modifier::DIM));
    session.ctrl('o');
    assert_eq!(session.from("first"), ["   first", "   second"]);
}
