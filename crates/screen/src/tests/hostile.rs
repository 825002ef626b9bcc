//! Texts of others that try to control the terminal, to hide something, or to spill over what is around them.

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use super::session::{Session, option, part_of, permission, prompt, state, text, tool, turn};

const EVIL: &str = "a\u{1b}[2Jb\u{9b}31mc\u{7}\r\u{202e}d\u{200b}e\u{2066}\u{feff}";
const SHOWN: &str = "a\\u{1b}[2Jb\\u{9b}31mc\\u{7}\\u{d}\\u{202e}d\\u{200b}e\\u{2066}\\u{feff}";

/// Draws, and looks at each cell.
fn check(session: &mut Session) {
    for cell in session.draw().content() {
        let symbol = cell.symbol();
        assert!(symbol.chars().count() <= 9, "{symbol:?}");
        assert_eq!(ensemble_protocol::transcript::visible(symbol), symbol, "a hidden character");
    }
}

#[test]
fn nothing_of_a_hostile_transcript_reaches_the_terminal() {
    let mut session = Session::new(100, 30);
    (session.title, session.name) = (EVIL.to_owned(), EVIL.to_owned());
    let tower = format!("z{}", "\u{301}".repeat(5_000));
    for (id, text) in [("p1", EVIL), ("p2", &tower), ("p3", "\u{301}\u{301}")] {
        session.bens(id, prompt(text));
    }
    session.host(turn(TurnState::Started, None));
    session.host(Content::Thought(part_of(0, EVIL)));
    session.host(text(1, &format!("# {EVIL}\n- **{EVIL}**\n```{EVIL}\n{EVIL}\n```\n> {EVIL}")));
    session.host(text(2, &tower));
    let diff = Diff { path: EVIL.to_owned(), old_text: Some(EVIL.to_owned()), new_text: tower, line: None, cut: None };
    let exit_status = Some(ExitStatus { exit_code: None, signal: Some(EVIL.to_owned()) });
    let terminal = Terminal { terminal_id: EVIL.to_owned(), output: EVIL.to_owned(), cut: None, exit_status };
    let content = vec![ToolContent::text(EVIL), ToolContent::Diff(diff), ToolContent::Terminal(terminal)];
    session.host(tool(EVIL, ToolStatus::Completed, content));
    session.host(Content::Newer(EVIL.into()));
    session.bens("c", Content::Control(Control::Newer(EVIL.into())));
    session.host(Content::Error(Failure { code: ErrorCode::Unknown, text: EVIL.to_owned(), retry_at: None }));
    session.host(turn(TurnState::Ended, Some(StopReason::Other(EVIL.into()))));
    session.host(turn(TurnState::Started, None));
    session.frame(9, 0, EVIL);
    check(&mut session);
    session.ctrl('o');
    session.screen.notice(EVIL);
    for _ in 0..8 {
        check(&mut session);
        session.key(KeyCode::PageUp);
    }
    session.key(KeyCode::Esc);
    assert!(session.text().contains(SHOWN));
}

#[test]
fn nothing_of_a_hostile_state_reaches_the_terminal() {
    let mut session = Session::new(100, 30);
    let mut hostile = state(Phase::Other(EVIL.into()));
    (hostile.mode, hostile.model, hostile.directory) = (Mode::Other(EVIL.into()), Some(EVIL.into()), EVIL.into());
    (hostile.agent, hostile.branch) = (EVIL.to_owned(), Some(EVIL.to_owned()));
    let command = |name: &str| SlashCommand { name: name.to_owned(), description: EVIL.to_owned(), hint: None };
    hostile.commands = vec![command(EVIL), command("/\u{202e}x")];
    hostile.modes = vec![Choice { id: EVIL.to_owned(), name: EVIL.to_owned() }];
    hostile.models = vec![Choice { id: EVIL.to_owned(), name: EVIL.to_owned() }];
    session.host(Content::State(Box::new(hostile)));
    let entry = PlanEntry { content: EVIL.to_owned(), priority: PlanPriority::Low, status: PlanStatus::Pending };
    session.host(Content::Plan(Plan { entries: vec![entry] }));
    check(&mut session);
    session.ctrl('t');
    for text in ["/", "/mode ", "/model "] {
        session.types(text);
        check(&mut session);
        session.ctrl('c');
    }
    session.types("/model ");
    session.key(KeyCode::Tab);
    check(&mut session);
}

#[test]
fn nothing_of_a_hostile_request_reaches_the_terminal() {
    let mut session = Session::new(100, 30);
    let mut asked = permission("r", EVIL);
    asked.title = EVIL.to_owned();
    asked.options = vec![option(EVIL, EVIL, OptionKind::AllowOnce)];
    session.host(Content::Permission(Box::new(asked)));
    check(&mut session);
    assert!(session.text().contains(SHOWN));
    let options = vec![QuestionOption { label: EVIL.to_owned(), description: Some(EVIL.to_owned()) }];
    let (id, text, header) = (EVIL.to_owned(), EVIL.to_owned(), Some(EVIL.to_owned()));
    let questions = vec![QuestionItem { id, text, header, options: Some(options), multiple: true }];
    session.host(Content::Question(Question { request_id: "q".to_owned(), tool_call_id: None, questions }));
    session.key(KeyCode::Tab);
    check(&mut session);
    let (outcome, reason) = (Outcome::Withdrawn, Some(EVIL.to_owned()));
    let request_id = "r".to_owned();
    session.host(Content::Resolved(Resolved { request_id, outcome, option_id: None, by: None, reason }));
    check(&mut session);
}
