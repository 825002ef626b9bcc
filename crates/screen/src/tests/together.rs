//! What several items say together stands once.

use std::collections::BTreeMap;

use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use super::session::{Session, is_in, part_of, permission, resolved, tool, turn};

/// The transcript without the lines around it.
fn lines(session: &mut Session) -> Vec<String> {
    let lines = session.lines().into_iter().skip(1);
    lines.take_while(|line| !line.starts_with(" ─")).collect()
}

#[test]
fn a_question_and_its_answer_are_one_line() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Idle));
    session.host(tool("AskUserQuestion", ToolStatus::InProgress, Vec::new()));
    let options = ["Blue", "Red"].map(|label| QuestionOption { label: label.to_owned(), description: None });
    session.host(Content::Question(Question {
        request_id: "q".to_owned(),
        tool_call_id: Some("c".to_owned()),
        questions: vec![QuestionItem {
            id: "a".to_owned(),
            text: "Which colour?".to_owned(),
            header: None,
            options: Some(options.into()),
            multiple: false,
        }],
    }));
    session.lines();
    let answers = BTreeMap::from([("a".to_owned(), vec!["Red".to_owned()])]);
    session.bens(
        "m1",
        Content::Answer(Answer {
            request_id: "q".to_owned(),
            digest: "digest-3".to_owned(),
            option_id: None,
            answers: Some(answers),
            message: None,
        }),
    );
    session.host(Content::Resolved(Resolved {
        request_id: "q".to_owned(),
        outcome: Outcome::Answered,
        option_id: None,
        by: Some(session.ben),
        reason: None,
    }));
    session.receipt("m1", "bens", ReceiptOutcome::Done, None);
    session.host(tool("AskUserQuestion", ToolStatus::Completed, Vec::new()));
    assert_eq!(lines(&mut session), [" ✓ Which colour? · Red · Ben"]);
}

#[test]
fn a_call_says_who_has_allowed_it() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Idle));
    session.host(tool("ls -l", ToolStatus::InProgress, Vec::new()));
    let asked = Permission { tool_call_id: Some("c".to_owned()), ..permission("r1", "ls -l") };
    session.host(Content::Permission(Box::new(asked)));
    session.lines();
    session.host(resolved("r1", "once", session.ben));
    session.host(tool("ls -l", ToolStatus::Completed, Vec::new()));
    assert_eq!(lines(&mut session), [" ✓ ls -l · Allow once · Ben"]);

    // What was refused says so: the call has not done it.
    let asked = Permission { tool_call_id: Some("c".to_owned()), ..permission("r2", "ls -l") };
    session.host(Content::Permission(Box::new(asked)));
    session.host(resolved("r2", "no", session.ben));
    assert_eq!(lines(&mut session)[1..], [" ✗ Run a command · Deny · Ben"]);
}

#[test]
fn who_has_interrupted_a_turn_stands_below_what_was_said_in_it() {
    let mut session = Session::new(60, 20);
    session.host(is_in(Phase::Working));
    session.host(turn(TurnState::Started, None));
    session.bens("m1", Content::Control(Control::Interrupt));
    assert_eq!(lines(&mut session), [" · Ben interrupted (not taken yet)"]);
    session.receipt("m1", "bens", ReceiptOutcome::Done, None);
    session.host(Content::Text(TextPart { interrupted: true, ..part_of(0, "I begin") }));
    session.host(turn(TurnState::Ended, Some(StopReason::Cancelled)));
    assert_eq!(lines(&mut session), [" I begin", " ⊘ interrupted", " ⊘ interrupted · Ben"]);
    // Between turns it ends commands, and nothing else says so.
    session.mine("m2", Content::Control(Control::Interrupt));
    session.receipt("m2", "mine", ReceiptOutcome::Done, None);
    assert_eq!(lines(&mut session).last().unwrap(), " · you interrupted");
}
