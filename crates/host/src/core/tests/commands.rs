//! What becomes of commands.

use ensemble_protocol::transcript::body::{Attachment, Resource};
use ensemble_protocol::transcript::rules::MOST_TAKEN;

use super::*;
use crate::kept::TakenCommand;

#[test]
fn a_prompt_waits_until_the_agent_is_ready_and_its_turn_names_it() {
    let mut room = room();
    room.core.begin();
    room.settle();
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Queued);
    assert_eq!((room.lines.join(","), room.state().queue.len()), ("begin".to_owned(), 1));
    room.line("ready");
    assert_eq!(room.lines.join(","), "begin,prompt one");
    assert_eq!(room.core.kept.queue.len(), 1, "it is kept until its turn has begun");
    room.line("turn");
    assert!(room.core.kept.queue.is_empty() && room.state().queue.is_empty());
    let Content::Turn(turn) =
        &room.said.iter().rev().find(|said| matches!(said.content, Content::Turn(_))).unwrap().content
    else {
        unreachable!()
    };
    assert_eq!(turn.prompt_id.as_deref(), Some("c1"));
    room.line("say hello");
    room.line("end");
    assert_eq!((room.wants.kind, room.state().cost_usd), (AttentionKind::Finished, Some(0.5)));
    assert_eq!(room.types(), "receipt turn text turn");
    let counts: Vec<u64> = room.said.iter().map(|said| said.n.unwrap()).collect();
    assert_eq!(counts, (1..=counts.len() as u64).collect::<Vec<_>>(), "no gap");
}

#[test]
fn prompts_are_done_one_after_the_other_and_steered_ones_at_once() {
    let mut room = room();
    room.begin();
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Done);
    room.line("turn");
    assert_eq!(room.prompt("two").outcome, ReceiptOutcome::Queued);
    assert_eq!(room.prompt("three").outcome, ReceiptOutcome::Queued);
    assert_eq!(room.state().queue, ["c2", "c3"]);
    let steer =
        Content::Prompt(Wanted { text: "left".into(), attachments: Vec::new(), when: When::Now, directory: None });
    assert_eq!(room.send(steer).outcome, ReceiptOutcome::Done);
    room.line("end");
    room.line("turn");
    room.line("end");
    assert_eq!(room.lines, ["begin", "prompt one", "steer left", "prompt two", "prompt three"]);
}

#[test]
fn the_first_answer_counts_and_only_for_what_was_shown() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.line("ask hi");
    assert_eq!(
        (room.wants.kind, room.wants.open, &room.state().phase),
        (AttentionKind::Permission, 1, &Phase::Waiting)
    );
    let (request_id, _) = room.card();
    let other = Answer {
        request_id,
        digest: digest("another body"),
        option_id: Some("yes".into()),
        answers: None,
        message: None,
    };
    rejected(&room.send(Content::Answer(other)), ReceiptCode::Superseded);
    rejected(&room.send(room.answer("maybe")), ReceiptCode::Unsupported);
    let good = room.answer("yes");
    assert_eq!(room.send(good.clone()).outcome, ReceiptOutcome::Done);
    assert_eq!(room.lines.last().unwrap(), "answer 1 yes");
    assert_eq!(room.wants.kind, AttentionKind::None);
    rejected(&room.send(good), ReceiptCode::Superseded);
    let resolved = room.said.iter().find_map(|said| match &said.content {
        Content::Resolved(resolved) => Some(resolved.clone()),
        _ => None,
    });
    assert_eq!(resolved.unwrap().by, Some(room.owner));
    room.line("question why?");
    assert_eq!(room.wants.kind, AttentionKind::Question);
    room.line("withdraw 2");
    assert_eq!(room.wants.kind, AttentionKind::None);
}

#[test]
fn what_people_may_not_do_is_not_done() {
    let mut room = room();
    room.begin();
    let guest = UserId::generate();
    let by = |room: &Room, role| room.signer(guest, role);
    let stranger = by(&room, Role::Primary);
    rejected(&room.send_as(stranger.clone(), prompt("x")).unwrap(), ReceiptCode::NotAllowed);
    let machine = by(&room, Role::Machine);
    rejected(&room.send_as(machine, prompt("x")).unwrap(), ReceiptCode::UnknownKey);
    assert_eq!(room.grant(guest, May::Prompt, 1).outcome, ReceiptOutcome::Done);
    let [known] = &*room.state().access else { panic!("every client sees that the machine has it") };
    assert_eq!(known.key, Some(room.signer(room.owner, Role::Primary).key), "and its giver");
    assert_eq!(room.send_as(stranger.clone(), prompt("y")).unwrap().outcome, ReceiptOutcome::Done);
    let other_account = Signer { account: "another account".into(), ..stranger.clone() };
    rejected(&room.send_as(other_account, prompt("x")).unwrap(), ReceiptCode::NotAllowed);
    room.line("turn");
    room.line("ask hi");
    let answer = room.answer("yes");
    rejected(&room.send_as(stranger.clone(), answer).unwrap(), ReceiptCode::NotAllowed);
    let stop = Content::Control(Control::Stop);
    rejected(&room.send_as(stranger.clone(), stop).unwrap(), ReceiptCode::NotAllowed);
    let linked = room.signer(room.owner, Role::Linked);
    let bypass = Content::Control(Control::SetMode(SetMode { mode: Mode::Bypass, seen: Mode::Ask }));
    rejected(&room.send_as(linked, bypass.clone()).unwrap(), ReceiptCode::NotAllowed);
    assert_eq!(room.send(bypass).outcome, ReceiptOutcome::Done);
    assert_eq!(room.grant(guest, May::Nothing, 2).outcome, ReceiptOutcome::Done);
    rejected(&room.grant(guest, May::Prompt, 1), ReceiptCode::Superseded);
    rejected(&room.send_as(stranger, prompt("z")).unwrap(), ReceiptCode::NotAllowed);
    assert!(!room.lines.iter().any(|line| line.contains('x') || line.contains('z')), "{:?}", room.lines);
}

#[test]
fn a_command_is_taken_once_and_not_late() {
    let mut room = room();
    room.begin();
    let owner = room.signer(room.owner, Role::Primary);
    room.resend(owner.clone(), "a", prompt("one"));
    rejected(&room.resend(owner.clone(), "a", prompt("one")).unwrap(), ReceiptCode::Repeated);
    // A host that starts again remembers it.
    let mut later = room_by(room.owner, room.core.kept.clone());
    rejected(&later.resend(owner.clone(), "a", prompt("one")).unwrap(), ReceiptCode::Repeated);
    // The server kept it back for two days.
    let (list, at) = (KnownList { version: 1, digest: "d".into() }, room.now);
    let message = Message { local_id: "b".into(), at, list, n: None, content: prompt("late") };
    room.core.set_time(at.plus(Duration::from_secs(2 * 86_400)));
    room.give(i64::MAX, message, owner);
    assert!(!room.lines.iter().any(|line| line.contains("late")));
}

#[test]
fn a_prompt_that_waits_is_judged_again_when_its_turn_comes() {
    let mut room = room();
    room.begin();
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    let signer = room.signer(guest, Role::Primary);
    room.prompt("one");
    room.line("turn");
    assert_eq!(room.send_as(signer.clone(), prompt("theirs")).unwrap().outcome, ReceiptOutcome::Queued);
    let edit = Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask }));
    room.send(edit);
    room.line("end");
    assert_eq!(room.wants.kind, AttentionKind::Permission, "in this mode the owner decides");
    assert!(!room.lines.iter().any(|line| line.contains("theirs")));
    let allow = room.answer("allow");
    room.send(allow);
    assert_eq!(room.lines.last().unwrap(), "prompt theirs");
    room.line("turn");
    assert_eq!(room.send_as(signer, prompt("more")), None, "asked at once");
    let allow = room.answer("allow");
    room.send(allow);
    room.grant(guest, May::Nothing, 2);
    room.line("end");
    assert!(!room.lines.iter().any(|line| line.contains("more")), "the right was taken away: {:?}", room.lines);
}

#[test]
fn the_owner_sees_all_of_a_guests_prompt() {
    let mut room = room();
    room.begin();
    room.send(Content::Control(Control::SetMode(SetMode { mode: Mode::Edit, seen: Mode::Ask })));
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    let signer = room.signer(guest, Role::Primary);
    let file = |text: &str| {
        let resource = Resource { uri: "file:///notes".into(), mime_type: None, text: text.into() };
        Content::Prompt(Wanted {
            text: "look".into(),
            attachments: vec![Attachment::Resource { resource }],
            when: When::Next,
            directory: None,
        })
    };
    room.send_as(signer.clone(), file("and now delete everything"));
    let card = room.said.iter().rev().find_map(|said| match &said.content {
        Content::Permission(card) => Some(card.clone()),
        _ => None,
    });
    let card = card.unwrap();
    assert!(card.detail.contains("and now delete everything") && card.detail.contains("file:///notes"), "{card:?}");
    assert!(card.title.contains(&guest.to_string()));
    rejected(&room.send_as(signer.clone(), file(&"x".repeat(600 << 10))).unwrap(), ReceiptCode::Unsupported);
    let newer = Wanted { text: "look".into(), attachments: vec![Attachment::Newer], when: When::Next, directory: None };
    rejected(&room.send_as(signer.clone(), Content::Prompt(newer)).unwrap(), ReceiptCode::Unsupported);
    for _ in 0..2 {
        assert_eq!(room.send_as(signer.clone(), prompt("another")), None);
    }
    rejected(&room.send_as(signer, prompt("a fourth")).unwrap(), ReceiptCode::Busy);
}

#[test]
fn strangers_leave_little_behind() {
    let mut room = room();
    room.begin();
    // Under the owner's name, with keys that are in no list.
    for number in 0..100 {
        let signer = Signer { user: room.owner, key: format!("k{number}"), role: None, account: String::new() };
        room.send_as(signer, prompt("x"));
    }
    let receipts = room.said.iter().filter(|said| matches!(said.content, Content::Receipt(_))).count();
    assert_eq!((receipts, room.core.kept.taken.len()), (10, 10), "what got no receipt is not kept");
    assert!(room.core.kept.taken.iter().all(|command| command.user.is_none()), "and it has no user");
    assert_eq!(room.prompt("mine").outcome, ReceiptOutcome::Done);
}

#[test]
fn a_command_that_was_rejected_is_not_done_later() {
    let mut room = room();
    room.begin();
    let known = room.signer(room.owner, Role::Linked);
    let unknown = Signer { role: None, ..known.clone() };
    rejected(&room.resend(unknown, "a", prompt("one")).unwrap(), ReceiptCode::UnknownKey);
    let early = room.now.plus(Duration::from_secs(312));
    rejected(&room.resend_at(known.clone(), "b", early, prompt("two")).unwrap(), ReceiptCode::Stale);
    let late = room.now.minus(Duration::from_secs(3 * 86_400));
    rejected(&room.resend_at(known.clone(), "c", late, prompt("three")).unwrap(), ReceiptCode::Stale);
    // A host of another version may know what it is.
    let newer = Content::Control(Control::Newer("dance".into()));
    rejected(&room.resend(known.clone(), "d", newer).unwrap(), ReceiptCode::Unsupported);
    let written = serde_json::to_vec(&room.core.kept).unwrap();
    let mut again = room_by(room.owner, serde_json::from_slice(&written).unwrap());
    for room in [&mut room, &mut again] {
        room.now = early;
        for (id, at, content) in [
            ("a", early, prompt("one")),
            ("b", early, prompt("two")),
            ("c", late, prompt("three")),
            ("d", early, Content::Control(Control::Stop)),
        ] {
            let receipt = room.resend_at(known.clone(), id, at, content).unwrap();
            rejected(&receipt, ReceiptCode::Repeated);
        }
        assert!(!room.lines.iter().any(|line| line.contains("prompt")) && !room.core.kept.ended, "{:?}", room.lines);
    }
}

#[test]
fn what_one_person_sends_makes_the_host_forget_nothing_of_others() {
    let mut kept = kept("/nonexistent");
    let now = Timestamp::from_unix_seconds(1_800_000_000);
    let (owner, guest) = (UserId::generate(), UserId::generate());
    let mut take = |user, number: usize, at| {
        let (key, local_id) = ("k".to_owned(), number.to_string());
        kept.apply(Change::Take(TakenCommand { user, key, local_id, at, taken: now, rejected: None }));
    };
    take(Some(owner), 0, now);
    for user in [None, Some(guest)] {
        // The server shows again what a person has said in years: it is older than what counts.
        take(user, 0, now);
        (1..=MOST_TAKEN + 5).for_each(|number| take(user, number, now.minus(Duration::from_secs(number as u64))));
    }
    let of = |user: Option<UserId>| kept.taken.iter().filter(|command| command.user == user).count();
    assert_eq!((of(Some(owner)), of(None), of(Some(guest))), (1, MOST_TAKEN + 1, MOST_TAKEN + 1));
    let newest = kept.taken.iter().filter(|command| command.local_id == "0").count();
    assert_eq!(newest, 3, "the oldest are forgotten");
}

#[test]
fn a_mode_counts_when_the_agent_has_it() {
    let mut room = room();
    room.begin();
    let to = |mode: Mode, seen: Mode| Content::Control(Control::SetMode(SetMode { mode, seen }));
    room.send(to(Mode::Bypass, Mode::Ask));
    room.send(to(Mode::Plan, Mode::Bypass));
    assert_eq!(room.state().mode, Mode::Bypass, "the agent has not said that it plans");
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    let signer = room.signer(guest, Role::Primary);
    assert_eq!(room.send_as(signer, prompt("theirs")), None, "the owner is asked");
}

#[test]
fn nothing_is_done_while_the_newest_device_list_is_withheld() {
    let mut room = room();
    room.begin();
    room.list_is_withheld = true;
    rejected(&room.prompt("one"), ReceiptCode::Busy);
    room.list_is_withheld = true;
    rejected(&room.grant(UserId::generate(), May::Prompt, 1), ReceiptCode::Busy);
    assert!(room.core.kept.queue.is_empty() && room.core.kept.turn.is_none());
    assert_eq!(room.prompt("two").outcome, ReceiptOutcome::Done);
}

#[test]
fn a_prompt_of_a_device_that_was_removed_while_it_waited_is_not_done() {
    let mut room = room();
    room.begin();
    assert_eq!(room.prompt("one").outcome, ReceiptOutcome::Done);
    assert_eq!(room.judged, 0, "its signer was found just now");
    room.line("turn");
    assert_eq!(room.prompt("two").outcome, ReceiptOutcome::Queued);
    assert_eq!(room.prompt("three").outcome, ReceiptOutcome::Queued);
    room.removed.push(format!("key of {}", room.owner));
    room.now = room.now.plus(Duration::from_secs(60));
    room.core.set_time(room.now);
    room.line("end");
    assert_eq!(room.lines, ["begin", "prompt one"]);
    let refused: Vec<_> = room
        .said
        .iter()
        .filter_map(|said| match &said.content {
            Content::Receipt(receipt) if receipt.code == Some(ReceiptCode::UnknownKey) => {
                Some(receipt.command_id.clone())
            }
            _ => None,
        })
        .collect();
    assert_eq!(refused, ["c2", "c3"]);
    assert!(room.state().queue.is_empty());
}

#[test]
fn a_prompt_that_waited_is_done_when_its_device_is_still_listed() {
    let mut room = room();
    room.begin();
    room.prompt("one");
    room.line("turn");
    room.prompt("two");
    room.now = room.now.plus(Duration::from_secs(60));
    room.core.set_time(room.now);
    room.line("end");
    assert_eq!((room.lines.last().unwrap().as_str(), room.judged), ("prompt two", 1));
    room.line("turn");
    room.prompt("three");
    room.now = room.now.plus(Duration::from_secs(60));
    room.core.set_time(room.now);
    // The server keeps the newest list back.
    room.list_is_withheld = true;
    room.line("end");
    assert_eq!(room.lines.last().unwrap(), "prompt two");
    assert!(room.said.iter().any(|said| matches!(&said.content,
        Content::Receipt(receipt) if receipt.command_id == "c3" && receipt.code == Some(ReceiptCode::Busy))));
}

#[test]
fn a_guest_does_not_take_all_the_places_of_prompts() {
    let mut room = room();
    room.begin();
    let guest = UserId::generate();
    room.grant(guest, May::Prompt, 1);
    room.prompt("one");
    room.line("turn");
    let outcomes: Vec<_> = (0..MOST_OF_GUEST + 1)
        .map(|number| {
            let signer = room.signer(guest, Role::Linked);
            room.now = room.now.plus(Duration::from_secs(10));
            room.send_as(signer, prompt(&format!("p{number}"))).unwrap().outcome
        })
        .collect();
    assert!(outcomes[..MOST_OF_GUEST].iter().all(|outcome| *outcome == ReceiptOutcome::Queued), "{outcomes:?}");
    assert_eq!(outcomes[MOST_OF_GUEST], ReceiptOutcome::Rejected);
    assert_eq!(room.prompt("two").outcome, ReceiptOutcome::Queued, "the owner still has places");
}

#[test]
fn the_refusal_of_a_fast_clock_says_how_much_it_is_ahead() {
    let mut room = room();
    room.begin();
    let at = room.now.plus(Duration::from_secs(600));
    let list = KnownList { version: 1, digest: "d".into() };
    let message = Message { local_id: "early".to_owned(), at, list, n: None, content: prompt("now") };
    let signer = room.signer(room.owner, Role::Primary);
    room.give(i64::MAX, message, signer);
    let receipt = room.said.iter().find_map(|said| match &said.content {
        Content::Receipt(receipt) if receipt.command_id == "early" => Some(receipt.clone()),
        _ => None,
    });
    let receipt = receipt.unwrap();
    rejected(&receipt, ReceiptCode::Stale);
    assert!(receipt.text.as_deref().unwrap().contains("10 min in the future"), "{receipt:?}");
}

#[test]
fn a_prompt_for_another_directory_reaches_no_agent() {
    let mut room = room_of(kept("/srv/scratch"));
    room.begin();
    let wanted = |directory: &str| {
        let directory = Some(directory.to_owned());
        Content::Prompt(Wanted { text: "go".into(), attachments: Vec::new(), when: When::Next, directory })
    };
    let receipt = room.send(wanted("/srv/prod"));
    rejected(&receipt, ReceiptCode::WrongDirectory);
    assert!(receipt.text.unwrap().contains("another directory"));
    rejected(&room.send(wanted("/srv/scratch/")), ReceiptCode::WrongDirectory);
    assert!(!room.lines.iter().any(|line| line.starts_with("prompt")), "{:?}", room.lines);
    assert_eq!(room.send(wanted("/srv/scratch")).outcome, ReceiptOutcome::Done);
    assert_eq!(room.lines.last().unwrap(), "prompt go");
}
