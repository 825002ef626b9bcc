//! What is read on a screen of 60 and of 40 columns.

use ensemble_protocol::transcript::body::*;
use ensemble_protocol::transcript::words::*;

use super::session::{Session, asks, prompt, state, text, tool, turn};
use crate::Level;

fn narrow(width: u16, level: Level) -> Session {
    let mut session = Session::new(width, 30);
    session.level = level;
    session.title = "Mend the parser of dates, which takes the month for the day".to_owned();
    session.bens("p1", prompt("Mend the parser of dates, please, and say what you have changed."));
    session.receipt("p1", "bens", ReceiptOutcome::Done, None);
    session.host(turn(TurnState::Started, None));
    let mut now = state(Phase::Waiting);
    now.directory = "/home/ann/code/customers/calendar/services/import".to_owned();
    now.branch = Some("feature/dates-of-import".to_owned());
    now.model = Some("claude-sonnet-4-5-20250929".to_owned());
    now.queue = vec!["p2".to_owned()];
    session.host(Content::State(Box::new(now)));
    session.host(tool("cargo test --workspace --all-features --no-fail-fast", ToolStatus::Completed, Vec::new()));
    session.host(text(1, "I have read the parser."));
    session.host(asks("r", "command: cargo test --workspace --all-features\ncwd: /home/ann/code/customers"));
    session
}

#[test]
fn the_head_says_where_the_agent_works_however_long_the_title_is() {
    let head = |width| narrow(width, Level::Owner).lines()[0].clone();
    assert_eq!(head(60), " Mend the parser of dates, which takes… · …/services/import");
    assert_eq!(head(40), " Mend the parser of dates, … · …/import");
    let head = narrow(140, Level::Owner).lines()[0].clone();
    assert!(head.ends_with(" · ~/code/customers/calendar/services/import (feature/dates-of-import)"), "{head}");
}

#[test]
fn a_long_model_leaves_room_for_the_keys() {
    let last = |width, level| narrow(width, level).lines().pop().unwrap();
    let at_60 = last(60, Level::Owner);
    assert!(at_60.starts_with(" claude-sonnet… · ask · 34% context") && at_60.ends_with("?: help"), "{at_60}");
    assert_eq!(last(40, Level::Owner), " claude-sonnet… · ask · 34% context");
}

#[test]
fn what_a_guest_reads_is_whole_on_a_narrow_screen() {
    for (width, level) in [(60, Level::Prompt), (40, Level::Prompt), (40, Level::Read)] {
        let mut session = narrow(width, level);
        session.settle();
        let text = session.text();
        assert!(text.contains("   Ben answers this, not you.\n"), "{text}");
        assert_eq!(level == Level::Read, text.contains("\n You may read this session.\n"), "{text}");
    }
}
