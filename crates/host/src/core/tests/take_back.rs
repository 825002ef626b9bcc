//! Prompts that are taken back while they wait.

use ensemble_protocol::transcript::body::TakeBack;

use super::*;

fn take_back(signer: &Signer, local_id: &str) -> Content {
    Content::Control(Control::TakeBack(TakeBack { local_id: local_id.into(), key: signer.key.clone() }))
}

/// The receipts of the owner's command, or of another person's, in order.
fn receipts(room: &Room, local_id: &str) -> Vec<(ReceiptOutcome, Option<ReceiptCode>)> {
    let of = room.said.iter().filter_map(|said| match &said.content {
        Content::Receipt(receipt) if receipt.command_id == local_id => {
            Some((receipt.outcome.clone(), receipt.code.clone()))
        }
        _ => None,
    });
    of.collect()
}

fn taken_back() -> (ReceiptOutcome, Option<ReceiptCode>) {
    (ReceiptOutcome::Rejected, Some(ReceiptCode::TakenBack))
}

/// `c1` is given to the agent, `c2` and `c3` wait.
fn with_queue() -> (Room, Signer) {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    room.prompt("three");
    let owner = room.signer(room.owner, Role::Primary);
    (room, owner)
}

#[test]
fn a_prompt_that_waits_is_taken_back_and_never_done() {
    let (mut room, owner) = with_queue();
    assert!(room.state().does.iter().any(|does| does == "take_back"));
    assert_eq!(room.send(take_back(&owner, "c2")).outcome, ReceiptOutcome::Done);
    assert_eq!(receipts(&room, "c2"), [(ReceiptOutcome::Queued, None), taken_back()]);
    assert_eq!(room.state().queue, ["c3"]);
    // Another device, or another window, at the same moment.
    assert_eq!(room.send(take_back(&owner, "c2")).outcome, ReceiptOutcome::Done);
    assert_eq!(receipts(&room, "c2").len(), 2, "the prompt is answered once");
    room.line("end");
    assert_eq!(room.lines, ["begin", "prompt one", "prompt three"]);
    // The server gives the prompt once more.
    rejected(&room.resend(owner, "c2", prompt("two")).unwrap(), ReceiptCode::Repeated);
    assert!(room.state().queue.is_empty());
}

#[test]
fn what_the_agent_has_is_not_taken_back() {
    let (mut room, owner) = with_queue();
    let late = |room: &mut Room, id: &str| {
        let before = receipts(room, id);
        rejected(&room.send(take_back(&owner, id)), ReceiptCode::Superseded);
        assert_eq!(receipts(room, id), before, "{id}");
    };
    late(&mut room, "c1");
    late(&mut room, "unknown");
    room.line("end");
    // It is given, and its turn has not begun.
    assert_eq!((room.lines.last().unwrap().as_str(), room.state().queue.len()), ("prompt two", 1));
    late(&mut room, "c2");
    room.line("turn");
    late(&mut room, "c2");
    let other_key = Signer { key: "another".into(), ..owner.clone() };
    rejected(&room.send(take_back(&other_key, "c3")), ReceiptCode::Superseded);
    assert_eq!(room.state().queue, ["c3"]);
}

#[test]
fn guests_take_back_what_is_theirs_and_the_owners_devices_all() {
    let (mut room, owner) = with_queue();
    let (ann, ben) = (UserId::generate(), UserId::generate());
    let (anns, bens) = (room.signer(ann, Role::Primary), room.signer(ben, Role::Linked));
    room.grant(ann, May::Approve, 1);
    room.grant(ben, May::Prompt, 1);
    room.resend(anns.clone(), "a1", prompt("anns")).unwrap();
    room.resend(bens.clone(), "b1", prompt("bens")).unwrap();
    room.resend(bens.clone(), "b2", prompt("bens")).unwrap();
    for (who, whose, id) in [(&anns, &owner, "c2"), (&anns, &bens, "b1"), (&bens, &anns, "a1"), (&bens, &owner, "c1")] {
        rejected(&room.send_as(who.clone(), take_back(whose, id)).unwrap(), ReceiptCode::NotAllowed);
    }
    assert_eq!(room.state().queue, ["c2", "c3", "a1", "b1", "b2"]);
    assert_eq!(room.send_as(bens.clone(), take_back(&bens, "b1")).unwrap().outcome, ReceiptOutcome::Done);
    let linked = Signer { key: "another device".into(), ..room.signer(room.owner, Role::Linked) };
    assert_eq!(room.send_as(linked, take_back(&anns, "a1")).unwrap().outcome, ReceiptOutcome::Done);
    assert_eq!((receipts(&room, "a1").pop(), receipts(&room, "b1").pop()), (Some(taken_back()), Some(taken_back())));
    room.grant(ben, May::Nothing, 2);
    rejected(&room.send_as(bens.clone(), take_back(&bens, "b2")).unwrap(), ReceiptCode::NotAllowed);
    assert_eq!(room.state().queue, ["c2", "c3", "b2"]);
}

#[test]
fn a_prompt_that_waits_for_the_owners_word_is_taken_back_with_its_request() {
    let (mut room, _) = with_queue();
    let guest = UserId::generate();
    let theirs = room.signer(guest, Role::Primary);
    room.grant(guest, May::Prompt, 1);
    room.send(Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask })));
    assert!(room.resend(theirs.clone(), "g1", prompt("theirs")).is_none());
    assert_eq!((room.wants.kind, room.wants.open), (AttentionKind::Permission, 1));
    let yes = room.answer("allow");
    assert_eq!(room.send_as(theirs.clone(), take_back(&theirs, "g1")).unwrap().outcome, ReceiptOutcome::Done);
    assert_eq!((receipts(&room, "g1"), room.wants.open), (vec![taken_back()], 0));
    rejected(&room.send(yes), ReceiptCode::Superseded);
    assert!(!room.state().queue.contains(&"g1".to_owned()));
}

#[test]
fn a_restart_of_the_host_does_not_do_what_was_taken_back() {
    let (mut room, owner) = with_queue();
    room.send(take_back(&owner, "c2"));
    let kept = serde_json::to_string(&room.core.kept).unwrap();
    let mut next = room_by(room.owner, serde_json::from_str(&kept).unwrap());
    next.core.recover();
    next.settle();
    assert_eq!(next.state().queue, ["c3"]);
    assert_eq!(next.send(take_back(&owner, "c2")).outcome, ReceiptOutcome::Done, "it was taken back before");
    assert!(receipts(&next, "c2").is_empty());
    assert_eq!(next.send(take_back(&owner, "c3")).outcome, ReceiptOutcome::Done);
    assert_eq!(receipts(&next, "c3"), [taken_back()]);
    assert!(next.core.kept.queue.is_empty() && !next.lines.iter().any(|line| line.starts_with("prompt")));
}

#[test]
fn no_one_is_asked_what_a_session_may_cost_that_has_nothing_to_do() {
    let mut room = room_of(Kept { limit: Some(crate::kept::CostLimit::new(0.4)), ..kept("/nonexistent") });
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    room.line("end");
    assert_eq!(room.wants.kind, AttentionKind::Permission);
    let owner = room.signer(room.owner, Role::Primary);
    assert_eq!(room.send(take_back(&owner, "c2")).outcome, ReceiptOutcome::Done);
    assert_eq!((room.wants.open, room.core.kept.open.len()), (0, 0));
    room.prompt("three");
    assert_eq!(room.wants.kind, AttentionKind::Permission, "it is asked again");
}
