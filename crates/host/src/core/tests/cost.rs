//! What a session may cost. A turn of the scripted agent costs half a dollar.

use super::*;
use crate::kept::CostLimit;

fn with_limit(each: f64) -> Room {
    let mut room = room_of(Kept { limit: Some(CostLimit::new(each)), ..kept("/nonexistent") });
    room.begin();
    room
}

fn turn(room: &mut Room) {
    room.line("turn");
    room.line("end");
}

/// What the agent was given.
fn given(room: &Room) -> Vec<&str> {
    room.lines.iter().filter_map(|line| line.strip_prefix("prompt ")).collect()
}

#[test]
fn people_are_asked_at_the_limit_and_each_time_it_is_reached_again() {
    let mut room = with_limit(0.8);
    for text in ["one", "two", "three"] {
        room.prompt(text);
    }
    turn(&mut room);
    turn(&mut room);
    // Two turns have cost a dollar.
    assert_eq!((given(&room), room.wants.kind), (vec!["one", "two"], AttentionKind::Permission));
    let asked = room.said.iter().filter(|said| matches!(said.content, Content::Permission(_))).count();
    assert_eq!(asked, 1);
    assert_eq!(room.prompt("four").outcome, ReceiptOutcome::Queued);
    let yes = room.answer("allow");
    assert_eq!(room.send(yes).outcome, ReceiptOutcome::Done);
    turn(&mut room);
    turn(&mut room);
    assert_eq!(given(&room), ["one", "two", "three", "four"]);
    // 2 dollars of at most 1.8.
    room.prompt("five");
    assert_eq!(room.wants.kind, AttentionKind::Permission);
    let no = room.answer("deny");
    room.send(no);
    assert_eq!((given(&room).len(), room.wants.kind), (4, AttentionKind::Finished));
    let refused = room.said.iter().rev().find_map(|said| match &said.content {
        Content::Receipt(receipt) if receipt.outcome == ReceiptOutcome::Rejected => Some(receipt.clone()),
        _ => None,
    });
    let refused = refused.unwrap();
    assert!(refused.command_id == "c6" && refused.text.unwrap().contains("$2.00"));
}

#[test]
fn guests_who_may_not_approve_do_not_raise_the_limit() {
    let mut room = with_limit(0.1);
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    room.prompt("one");
    turn(&mut room);
    room.prompt("two");
    let yes = room.answer("allow");
    let signer = room.signer(guest, Role::Linked);
    rejected(&room.send_as(signer, yes).unwrap(), ReceiptCode::NotAllowed);
    assert_eq!(given(&room), ["one"]);
}

#[test]
fn a_new_process_of_the_agent_asks_again() {
    let mut room = with_limit(0.1);
    room.prompt("one");
    turn(&mut room);
    room.prompt("two");
    room.exit();
    room.line("ready");
    let asked = room.said.iter().filter(|said| matches!(said.content, Content::Permission(_))).count();
    assert_eq!((asked, given(&room)), (2, vec!["one"]));
    let yes = room.answer("allow");
    room.send(yes);
    assert_eq!(given(&room), ["one", "two"]);
}

#[test]
fn a_turn_that_says_what_it_costs_is_interrupted_at_the_limit() {
    let mut room = with_limit(1.0);
    room.prompt("one");
    room.line("turn");
    room.line("cost 0.9");
    assert!(!room.lines.contains(&"interrupt".to_owned()));
    room.line("cost 1.1");
    room.line("cost 1.2");
    assert_eq!(room.lines.iter().filter(|line| *line == "interrupt").count(), 1);
    assert!(room.types().contains("error"));
}

#[test]
fn nothing_is_put_into_a_turn_past_the_limit() {
    let mut room = with_limit(0.8);
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    room.prompt("one");
    room.line("turn");
    // An agent may make a separate turn of it.
    let steer =
        Content::Prompt(Wanted { text: "more".into(), attachments: Vec::new(), when: When::Now, directory: None });
    let signer = room.signer(guest, Role::Linked);
    let receipt = room.send_as(signer, steer).unwrap();
    assert_eq!(receipt.outcome, ReceiptOutcome::Queued);
    assert!(!room.lines.iter().any(|line| line.starts_with("steer")), "{:?}", room.lines);
    room.line("end");
    turn(&mut room);
    assert_eq!(given(&room), ["one", "more"]);

    // A turn that the agent begins by itself, with a dollar of at most 0.8.
    room.line("turn");
    assert_eq!(room.lines.iter().filter(|line| *line == "interrupt").count(), 1);
    room.line("end");
    room.prompt("two");
    assert_eq!(room.wants.kind, AttentionKind::Permission);
}
