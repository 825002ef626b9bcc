//! Interrupts, ends and new beginnings.

use super::*;

#[test]
fn an_interrupt_closes_what_is_open() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    assert_eq!(room.send(Content::Control(Control::Interrupt)).outcome, ReceiptOutcome::Done);
    rejected(&room.send(answer), ReceiptCode::Superseded);
    assert_eq!(room.lines.last().unwrap(), "interrupt");
    assert!(room.core.is_interrupting());
    room.line("end");
    assert!(!room.core.is_interrupting());
}

#[test]
fn an_agent_that_dies_is_started_again_by_the_next_prompt_with_its_conversation() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    room.exit();
    assert_eq!(room.state().phase, Phase::Parked);
    assert_eq!((room.wants.kind, room.core.kept.open.len()), (AttentionKind::Failed, 0));
    rejected(&room.send(answer), ReceiptCode::Superseded);
    room.prompt("continue");
    assert_eq!(room.starts.len(), 2);
    assert_eq!(room.starts[1].resume.as_deref(), Some("conversation"));
    room.line("ready");
    assert!(room.lines.last().unwrap().ends_with("\n\ncontinue"));
}

#[test]
fn a_conversation_is_copied_once() {
    let resume = Some("original".to_owned());
    let mut room = room_of(Kept { resume, fork: true, ..kept("/nonexistent") });
    room.begin();
    room.exit();
    assert_eq!(room.state().provider_session_id, None, "that one is not of this session");
    room.prompt("one");
    assert!(room.starts.iter().all(|start| start.fork && start.resume.as_deref() == Some("original")));
    room.line("ready");
    room.line("turn");
    room.line("ready copy");
    room.line("end");
    room.exit();
    assert_eq!(room.state().provider_session_id.as_deref(), Some("copy"));
    room.prompt("two");
    let last = room.starts.last().unwrap();
    assert_eq!((room.starts.len(), last.fork, last.resume.as_deref()), (3, false, Some("copy")));
}

#[test]
fn an_agent_that_never_becomes_ready_is_not_started_for_ever() {
    let mut room = room();
    room.core.begin();
    room.settle();
    room.prompt("one");
    for _ in 0..10 {
        room.exit();
    }
    assert_eq!(room.starts.len(), usize::try_from(MOST_CRASHES).unwrap());
    assert_eq!(room.core.kept.queue.len(), 1, "the prompt is not lost");
    room.prompt("two");
    assert_eq!(room.starts.len(), usize::try_from(MOST_CRASHES).unwrap() + 1, "a person asks for it");
}

#[test]
fn a_host_that_was_killed_closes_what_was_under_way() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    room.prompt("two");
    let mut next = room_by(room.owner, room.core.kept.clone());
    next.core.recover();
    next.settle();
    assert_eq!(next.types(), "resolved error turn");
    assert_eq!(next.said.first().unwrap().n, Some(room.core.kept.n + 1), "its count continues");
    assert_eq!(next.starts.len(), 1, "a prompt waits");
    assert_eq!(next.starts[0].resume.as_deref(), Some("conversation"));
    next.line("ready");
    assert!(next.lines.last().unwrap().ends_with("\n\ntwo"));
}

#[test]
fn where_nothing_is_asked_the_owner_is_asked_about_prompts_of_guests() {
    let mut room = room();
    room.begin();
    let edit = Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask }));
    assert_eq!(room.send(edit.clone()).outcome, ReceiptOutcome::Done);
    rejected(&room.send(edit), ReceiptCode::Superseded);
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    let signer = room.signer(guest, Role::Primary);
    assert_eq!(room.send_as(signer.clone(), prompt("theirs")), None, "the owner decides first");
    assert_eq!(room.wants.kind, AttentionKind::Permission);
    let allow = room.answer("allow");
    room.send(allow);
    assert_eq!(room.lines.last().unwrap(), "prompt theirs");
    assert_eq!(room.send_as(signer.clone(), prompt("another")), None);
    let deny = room.answer("deny");
    room.send(deny);
    let last = room.said.iter().rev().find_map(|said| match &said.content {
        Content::Receipt(receipt) if receipt.key == signer.key => Some(receipt.clone()),
        _ => None,
    });
    rejected(&last.unwrap(), ReceiptCode::NotAllowed);
    assert!(!room.lines.iter().any(|line| line.contains("another")));
}

#[test]
fn a_session_that_was_stopped_takes_prompts_again_when_it_is_resumed() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    assert_eq!(room.send(Content::Control(Control::Stop)).outcome, ReceiptOutcome::Done);
    assert!(room.closed && room.core.kept.queue.is_empty());
    room.exit();
    assert_eq!(room.state().phase, Phase::Ended);
    rejected(&room.prompt("three"), ReceiptCode::Superseded);
    let elsewhere = Resume { directory: Some("/prod".to_owned()) };
    rejected(&room.send(Content::Control(Control::Resume(elsewhere))), ReceiptCode::WrongDirectory);
    assert_eq!(room.state().phase, Phase::Ended, "nothing is resumed");
    let here = Resume { directory: Some(room.state().directory.clone()) };
    assert_eq!(room.send(Content::Control(Control::Resume(here))).outcome, ReceiptOutcome::Done);
    assert_eq!(room.starts.last().unwrap().resume.as_deref(), Some("conversation"));
    room.line("ready");
    assert_eq!(room.prompt("four").outcome, ReceiptOutcome::Done);
}

#[test]
fn a_host_that_ends_waits_for_the_turn_and_begins_no_other() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    room.core.drain(false);
    room.settle();
    assert!(!room.closed, "the turn continues");
    room.line("end");
    assert!(room.closed, "and the next one does not begin");
    room.exit();
    assert!(!room.core.runs() && room.core.kept.queue.len() == 1);
}

#[test]
fn a_turn_is_left_to_its_agent_and_followed_later() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    let server = unique();
    room.core.drain(true);
    assert!(!room.core.leave(server), "it is unknown whether the agent has begun");
    room.line("turn");
    room.line("ask hi");
    let (request, turn) = (room.core.kept.open.clone(), room.core.kept.turn.clone());
    assert_eq!(request.len(), 1, "it waits for an answer until the end");
    assert!(room.core.leave(server));
    room.settle();
    assert!(room.core.kept.open.is_empty() && !room.lines.iter().any(|line| line == "interrupt") && !room.closed);

    // The next process has what was written down.
    let kept: Kept = serde_json::from_value(serde_json::to_value(&room.core.kept).unwrap()).unwrap();
    let left = kept.left.clone().unwrap();
    assert_eq!((left.server, &kept.turn), (server, &turn));
    let mut next = room_by(room.owner, kept.clone());
    next.core.follow(left.checkpoint.clone());
    next.settle();
    assert_eq!(next.starts[0].checkpoint.as_ref(), Some(&left.checkpoint));
    assert_eq!(next.starts[0].resume.as_deref(), Some("conversation"));
    assert_eq!(next.state().phase, Phase::Working);
    next.prompt("two");
    next.line("ready");
    assert!(next.lines.iter().all(|line| line == "begin"), "the turn still runs: {:?}", next.lines);
    next.line("ask hi");
    assert_eq!(next.core.kept.open.len(), 1, "it asks again");
    next.line("end");
    assert_eq!(next.lines.last().unwrap(), "prompt two");
    let ended = |said: &[Message]| {
        said.iter().filter(|one| matches!(&one.content, Content::Turn(turn) if turn.stop_reason.is_some())).count()
    };
    assert_eq!(ended(&next.said), 1);
    assert!(next.core.kept.left.is_none());

    // Without the agent it was interrupted, as after a crash.
    let mut lost = room_by(room.owner, kept);
    lost.core.recover();
    lost.settle();
    assert!(lost.core.kept.turn.is_none() && lost.core.kept.left.is_none() && lost.core.kept.cut_off);
}

#[test]
fn a_turn_that_cannot_be_followed_ends() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.core.drain(true);
    assert!(room.core.leave(unique()));
    room.settle();
    let kept = room.core.kept.clone();
    let checkpoint = kept.left.clone().unwrap().checkpoint;
    let mut next = room_by(room.owner, kept);
    next.core.follow(checkpoint);
    next.settle();
    next.core.not_started("its server cannot be reached");
    next.settle();
    assert!(next.core.kept.turn.is_none() && !next.core.runs());
    next.prompt("two");
    assert_eq!(next.starts.len(), 2, "the next prompt starts the agent again");
    assert!(next.starts[1].checkpoint.is_none());
}

#[test]
fn an_idle_agent_is_parked_and_one_with_work_is_not() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.core.park();
    room.settle();
    assert!(!room.closed);
    room.line("end");
    room.core.park();
    room.settle();
    assert!(room.closed);
    room.exit();
    assert_eq!((room.state().phase.clone(), room.starts.len()), (Phase::Parked, 1));
    room.prompt("two");
    assert_eq!(room.starts.len(), 2);
}

#[test]
fn a_change_of_a_file_that_is_another_one_now_is_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, "old").unwrap();
    let mut room = room_of(kept(folder.path().to_str().unwrap()));
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask new");
    let answer = room.answer("yes");
    std::fs::write(&file, "older").unwrap();
    let first = room.card().0;
    rejected(&room.send(answer), ReceiptCode::Superseded);
    let (second, _) = room.card();
    assert!(first != second && room.core.kept.open.len() == 1, "it is asked again under another id");
    let again = room.answer("yes");
    assert_eq!(room.send(again).outcome, ReceiptOutcome::Done);
    assert_eq!(room.lines.last().unwrap(), "answer 1 yes");
}

#[test]
fn the_texts_of_a_turn_are_streamed_and_end_with_it() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    assert!(!room.core.has_frames());
    room.core.take_output(Output {
        events: vec![Event::Delta { part: 0, kind: PartKind::Text, text: "hel".into() }],
        ..Output::default()
    });
    assert_eq!(room.core.frames()[0].text, "hel");
    room.line("say hello");
    assert!(!room.core.has_frames(), "the whole text is a message");
}

#[test]
fn what_an_agent_may_have_begun_is_not_done_twice() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    // It has the prompt, and dies before its turn.
    room.exit();
    let last = room.said.iter().rev().find_map(|said| match &said.content {
        Content::Receipt(receipt) => Some(receipt.clone()),
        _ => None,
    });
    rejected(&last.unwrap(), ReceiptCode::Superseded);
    assert!(room.core.kept.queue.is_empty() && room.starts.len() == 1);

    let mut killed = super::room();
    killed.begin();
    killed.prompt("one");
    killed.prompt("two");
    let mut next = room_by(killed.owner, killed.core.kept.clone());
    next.core.recover();
    next.settle();
    next.line("ready");
    assert_eq!(next.lines, ["begin", "prompt two"], "the first one may have been begun, the second one was not given");
}

#[test]
fn a_host_that_ends_does_not_wait_for_an_answer() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("question why?");
    room.core.drain(false);
    room.settle();
    assert_eq!(room.lines.last().unwrap(), "interrupt");
    room.line("end");
    assert!(room.closed && room.core.kept.open.is_empty());
}

#[test]
fn a_prompt_that_the_agent_cannot_do_holds_nothing_up() {
    let mut room = room();
    room.begin();
    rejected(&room.prompt("impossible"), ReceiptCode::Unsupported);
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Done);
    room.line("turn");
    room.prompt("impossible");
    room.prompt("two");
    room.line("end");
    assert_eq!(room.lines.last().unwrap(), "prompt two");
    assert_eq!(room.core.kept.queue.len(), 1, "only the one that the agent has");
}

#[test]
fn an_agent_that_was_ended_in_a_turn_gets_one_note_of_it() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.exit();
    room.prompt("/compact");
    room.line("ready");
    assert_eq!(room.lines.last().unwrap(), "prompt /compact", "a command stays as it is");
    room.line("turn");
    room.line("end");
    room.prompt("two");
    let line = room.lines.last().unwrap().clone();
    assert!(line.starts_with("prompt (Your process was ended in the middle") && line.ends_with("\n\ntwo"), "{line}");
    room.line("turn");
    room.line("end");
    room.prompt("three");
    assert_eq!(room.lines.last().unwrap(), "prompt three");
}
