//! Any keys, messages and sizes in any order: the screen draws, and an answer is only of a card that was shown for long enough.

use std::collections::HashMap;

use crossterm::event::{Event, KeyCode, KeyModifiers};
use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;
use proptest::prelude::*;

use super::session::{Session, asks, diff, is_in, prompt, resolved, text, tool, turn};
use crate::Action;

#[derive(Clone, Debug)]
enum Step {
    Key(KeyCode, KeyModifiers),
    Paste(String),
    Size(u16, u16),
    Wait(u64),
    Message(u8),
    Draw,
}

fn key() -> impl Strategy<Value = Step> {
    let codes = prop_oneof![
        any::<char>().prop_map(KeyCode::Char),
        prop::sample::select("/mode 0123?ynocsdujkwabez".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        prop::sample::select(vec![
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Backspace,
            KeyCode::Delete,
        ]),
    ];
    let modifiers = prop::sample::select(vec![KeyModifiers::NONE, KeyModifiers::CONTROL, KeyModifiers::ALT]);
    (codes, modifiers).prop_map(|(code, modifiers)| Step::Key(code, modifiers))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => key(),
        1 => "[a-z\n\r\u{1b}漢\u{301} ]{0,80}".prop_map(Step::Paste),
        1 => (1u16..130, 1u16..40).prop_map(|(width, height)| Step::Size(width, height)),
        2 => (0u64..700).prop_map(Step::Wait),
        4 => (0u8..12).prop_map(Step::Message),
        4 => Just(Step::Draw),
    ]
}

fn question(id: &str) -> Content {
    let option = |label: &str| QuestionOption { label: label.to_owned(), description: None };
    let question = |id: &str, options, multiple| QuestionItem {
        id: id.to_owned(),
        text: "What?\nWhy?".to_owned(),
        header: None,
        options,
        multiple,
    };
    let both = Some(vec![option("a"), option("b")]);
    let questions = vec![question("1", both.clone(), false), question("2", both, true), question("3", None, false)];
    Content::Question(Question { request_id: id.to_owned(), tool_call_id: None, questions })
}

fn message(session: &mut Session, which: u8, number: usize) {
    let id = format!("id{number}");
    let ben = session.ben;
    match which {
        0 => session.host(asks(&id, "ls")),
        1 => session.host(asks(&id, &"a line that is long\n".repeat(80))),
        2 => session.host(question(&id)),
        3 => {
            let open = session.view.open().next().map(|card| card.request_id.clone());
            session.host(resolved(&open.unwrap_or_default(), "no", ben));
        }
        4 => session.host(turn(TurnState::Started, None)),
        5 => session.host(turn(TurnState::Ended, Some(StopReason::Cancelled))),
        6 => session.host(text(u32::try_from(number).unwrap(), &"# x\n```\n漢字 **a** ".repeat(20))),
        7 => session.host(tool("Edit", ToolStatus::InProgress, vec![diff()])),
        8 => session.host(is_in(Phase::Working)),
        9 => session.host(is_in(Phase::Idle)),
        10 => session.mine(&id, prompt("mine\nof two lines")),
        _ => {
            let text = "x".repeat(number);
            let frame = ensemble_protocol::transcript::Frame {
                turn_id: "t".to_owned(),
                part: 7,
                offset: 0,
                text,
                thought: false,
            };
            session.view.frame(&frame);
        }
    }
}

/// An answer is of a request that is open, and has been for a second.
fn answers(
    session: &Session,
    action: Option<Action>,
    now: u64,
    asked: &HashMap<String, u64>,
) -> Result<(), TestCaseError> {
    if let Some(Action::Answer { request_id, .. }) = action {
        prop_assert!(session.view.open().any(|card| card.request_id == request_id), "it was closed");
        prop_assert!(now - asked[&request_id] >= 1_000, "too soon");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks(steps in prop::collection::vec(step(), 1..120)) {
        let mut session = Session::new(60, 20);
        // When each request came.
        let (mut now, mut asked) = (0, HashMap::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Key(code, modifiers) => {
                    let action = session.press(code, modifiers);
                    answers(&session, action, now, &asked)?;
                }
                Step::Paste(text) => drop(session.event(Event::Paste(text))),
                Step::Size(width, height) => session.resize(width, height),
                Step::Wait(time) => {
                    session.wait(time);
                    now += time;
                    let action = session.due();
                    answers(&session, action, now, &asked)?;
                }
                Step::Message(which) => {
                    message(&mut session, which, number);
                    for card in session.view.open() {
                        asked.entry(card.request_id.clone()).or_insert(now);
                    }
                }
                Step::Draw => drop(session.draw()),
            }
        }
        session.draw();
    }
}
