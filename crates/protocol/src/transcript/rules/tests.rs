//! Each rule with what it forbids, and properties that hold for any sequence of commands.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::transcript::body::{AccessGrant, KnownList, Prompt, Resume, SetMode, SetModel, TakeBack};
use crate::transcript::words::{May, OptionKind, When};

mod remembering;
mod stopping;

const NOON: Timestamp = Timestamp::from_unix_seconds(1_800_000_000);

fn user(number: u8) -> UserId {
    format!("01890a5d-ac96-774b-bcce-b302099a80{number:02x}").parse().unwrap()
}

/// A session that waits for nothing.
const IDLE: Situation<'static> = Situation {
    mode: &Mode::Ask,
    ended: false,
    epoch: 1,
    newest_epoch: 1,
    directory: "/project",
    open: None,
    list_is_withheld: false,
    key_is_missing: false,
};

fn signer(number: u8, role: Role) -> Signer {
    Signer {
        user: user(number),
        key: format!("key-{number}-{role:?}"),
        role: Some(role),
        account: format!("a{number}"),
    }
}

fn owner() -> Signer {
    signer(1, Role::Primary)
}

fn command(id: &str, at: Timestamp, content: Content) -> Message {
    Message { local_id: id.to_owned(), at, list: KnownList { version: 1, digest: String::new() }, n: None, content }
}

fn prompt() -> Content {
    Content::Prompt(Prompt { text: "go".to_owned(), attachments: Vec::new(), when: When::Next, directory: None })
}

fn set_mode(mode: Mode) -> Content {
    Content::Control(Control::SetMode(SetMode { mode, seen: Mode::Ask }))
}

fn grant(number: u8, may: May, version: u64) -> Content {
    let grant = AccessGrant {
        user: user(number),
        account: format!("a{number}"),
        may,
        version,
        removed: false,
        key_epoch: None,
        key: None,
    };
    Content::Control(Control::Access(grant))
}

fn answer(digest: &str, option: Option<&str>) -> Content {
    let (request_id, digest) = ("r".to_owned(), digest.to_owned());
    let option_id = option.map(str::to_owned);
    Content::Answer(Answer { request_id, digest, option_id, answers: None, message: None })
}

fn request() -> OpenRequest {
    let option = PermissionOption { option_id: "allow".into(), name: "Allow".into(), kind: OptionKind::AllowOnce };
    OpenRequest { digest: "d".to_owned(), options: Some(vec![option]) }
}

/// The decision in the mode `ask`, with one open request.
fn decide(rules: &mut Rules, who: &Signer, id: &str, content: Content) -> Decision {
    decide_in(rules, who, id, content, &Mode::Ask)
}

fn decide_in(rules: &mut Rules, who: &Signer, id: &str, content: Content, mode: &Mode) -> Decision {
    let open = request();
    let situation = Situation { mode, open: Some(&open), ..IDLE };
    rules.decide(&command(id, NOON, content), who, &situation, NOON).0
}

fn with_guests() -> Rules {
    let mut rules = Rules::new(user(1));
    for (number, may) in [(2, May::Approve), (3, May::Prompt), (4, May::Nothing)] {
        assert_eq!(decide(&mut rules, &owner(), &format!("g{number}"), grant(number, may, 1)), Decision::Take);
    }
    rules
}

#[test]
fn the_table_says_who_may_command() {
    let take = Decision::Take;
    let no = Decision::Reject(ReceiptCode::NotAllowed);
    let set_model = Content::Control(Control::SetModel(SetModel { model: "m".to_owned() }));
    // primary, linked, approve, prompt, none, stranger
    let take_back = Control::TakeBack(TakeBack { local_id: "p".to_owned(), key: "k".to_owned() });
    let rows: [(Content, [bool; 6]); 12] = [
        (prompt(), [true, true, true, true, false, false]),
        (Content::Control(Control::Interrupt), [true, true, true, true, false, false]),
        (Content::Control(take_back), [true, true, true, true, false, false]),
        (answer("d", Some("allow")), [true, true, true, false, false, false]),
        (set_model, [true, true, true, false, false, false]),
        (set_mode(Mode::Ask), [true, true, false, false, false, false]),
        (set_mode(Mode::Plan), [true, true, false, false, false, false]),
        (set_mode(Mode::Edit), [true, true, false, false, false, false]),
        (set_mode(Mode::Bypass), [true, false, false, false, false, false]),
        (Content::Control(Control::Stop), [true, true, false, false, false, false]),
        (Content::Control(Control::Resume(Resume::default())), [true, true, false, false, false, false]),
        (grant(9, May::Prompt, 1), [true, true, false, false, false, false]),
    ];
    let people = [owner(), signer(1, Role::Linked), signer(2, Role::Linked), signer(3, Role::Primary)]
        .into_iter()
        .chain([signer(4, Role::Primary), signer(5, Role::Primary)]);
    for (column, who) in people.enumerate() {
        for (row, (content, allowed)) in rows.iter().enumerate() {
            let expected = if allowed[column] { &take } else { &no };
            let mut rules = with_guests();
            let found = decide(&mut rules, &who, &format!("c{row}"), content.clone());
            assert_eq!(found, *expected, "{content:?} by {who:?}");
        }
    }
}

#[test]
fn only_keys_of_people_command() {
    for role in [Some(Role::Machine), Some(Role::Recovery), None] {
        let who = Signer { role, ..owner() };
        assert_eq!(decide(&mut with_guests(), &who, "c", prompt()), Decision::Reject(ReceiptCode::UnknownKey));
    }
}

#[test]
fn an_account_that_was_not_pinned_has_no_right() {
    let who = Signer { account: "another".to_owned(), ..signer(2, Role::Primary) };
    assert_eq!(decide(&mut with_guests(), &who, "c", prompt()), Decision::Reject(ReceiptCode::NotAllowed));
}

#[test]
fn a_guest_prompts_a_mode_that_asks_nothing_only_through_the_owner() {
    for (mode, asks) in [(Mode::Ask, false), (Mode::Plan, false), (Mode::Edit, true), (Mode::Bypass, true)] {
        let decision = |number| decide_in(&mut with_guests(), &signer(number, Role::Primary), "c", prompt(), &mode);
        assert_eq!(decision(3), if asks { Decision::AskOwner } else { Decision::Take }, "{mode:?}");
        assert_eq!((decision(2), decision(1)), (Decision::Take, Decision::Take), "{mode:?}");
    }
}

#[test]
fn the_highest_version_of_an_access_counts() {
    let mut rules = with_guests();
    let guest = signer(3, Role::Primary);
    assert_eq!(decide(&mut rules, &owner(), "a", grant(3, May::Nothing, 7)), Decision::Take);
    assert_eq!(decide(&mut rules, &guest, "b", prompt()), Decision::Reject(ReceiptCode::NotAllowed));
    for (id, version) in [("c", 6), ("d", 7)] {
        let late = decide(&mut rules, &owner(), id, grant(3, May::Approve, version));
        assert_eq!(late, Decision::Reject(ReceiptCode::Superseded), "a withheld grant does not come back");
    }
    assert_eq!(
        decide(&mut rules, &owner(), "e", grant(1, May::Nothing, 1)),
        Decision::Reject(ReceiptCode::Unsupported)
    );
    let kept = Access::of_grants(rules.access.grants().cloned());
    assert_eq!(kept, rules.access, "it survives a restart");
}

#[test]
fn a_command_names_the_directory_in_which_the_person_saw_the_session() {
    let mut rules = Rules::new(user(1));
    let prompt = |directory: Option<&str>| {
        let directory = directory.map(str::to_owned);
        Content::Prompt(Prompt { text: "go".to_owned(), attachments: Vec::new(), when: When::Next, directory })
    };
    let resume = |directory: &str| Content::Control(Control::Resume(Resume { directory: Some(directory.to_owned()) }));
    let mut with = |id: &str, content, situation: Situation<'_>| {
        rules.decide(&command(id, NOON, content), &owner(), &situation, NOON).0
    };
    let wrong = Decision::Reject(ReceiptCode::WrongDirectory);
    assert_eq!(with("a", prompt(Some("/project")), IDLE), Decision::Take);
    assert_eq!(with("b", prompt(None), IDLE), Decision::Take, "chosen by its ref, without a look at it");
    for (id, other) in [("c", "/project/"), ("d", "/Project"), ("e", ""), ("f", "/prod")] {
        assert_eq!(with(id, prompt(Some(other)), IDLE), wrong, "{other}");
    }
    assert_eq!(with("g", resume("/prod"), Situation { ended: true, ..IDLE }), wrong, "nothing is resumed");
    assert_eq!(with("h", resume("/project"), Situation { ended: true, ..IDLE }), Decision::Take);
    let ended = Situation { ended: true, ..IDLE };
    assert_eq!(with("i", prompt(Some("/prod")), ended), wrong);
    let old = Situation { newest_epoch: 2, ..IDLE };
    assert_eq!(with("j", prompt(Some("/prod")), old), Decision::Reject(ReceiptCode::OldKey), "the row before");
}

#[test]
fn an_answer_is_for_the_request_that_was_shown() {
    let decision = |content| decide(&mut with_guests(), &owner(), "c", content);
    assert_eq!(decision(answer("d", Some("allow"))), Decision::Take);
    assert_eq!(decision(answer("other", Some("allow"))), Decision::Reject(ReceiptCode::Superseded));
    assert_eq!(decision(answer("d", Some("made-up"))), Decision::Reject(ReceiptCode::Unsupported));
    assert_eq!(decision(answer("d", None)), Decision::Reject(ReceiptCode::Unsupported));
    let closed = command("c", NOON, answer("d", Some("allow")));
    let found = with_guests().decide(&closed, &owner(), &IDLE, NOON).0;
    assert_eq!(found, Decision::Reject(ReceiptCode::Superseded));
}

#[test]
fn a_guest_chooses_nothing_that_reaches_further_than_the_request() {
    let kinds = [
        ("once", OptionKind::AllowOnce),
        ("never", OptionKind::RejectOnce),
        ("always", OptionKind::AllowAlways),
        ("for-good", OptionKind::RejectAlways),
        ("newer", OptionKind::of("something newer")),
    ];
    let options = kinds.map(|(id, kind)| PermissionOption { option_id: id.to_owned(), name: id.to_owned(), kind });
    let open = OpenRequest { digest: "d".to_owned(), options: Some(options.into()) };
    let mut rules = with_guests();
    let situation = Situation { open: Some(&open), ..IDLE };
    for who in [owner(), signer(1, Role::Linked), signer(2, Role::Primary)] {
        for id in ["once", "never", "always", "for-good", "newer"] {
            let message = command(&format!("{id} of {}", who.key), NOON, answer("d", Some(id)));
            let is_taken = who.user == user(1) || matches!(id, "once" | "never");
            let expected = if is_taken { Decision::Take } else { Decision::Reject(ReceiptCode::NotAllowed) };
            assert_eq!(rules.decide(&message, &who, &situation, NOON).0, expected, "{id} by {}", who.key);
        }
    }
}

#[test]
fn what_has_changed_meanwhile_is_not_done() {
    let mut rules = Rules::new(user(1));
    let changed = decide_in(&mut rules, &owner(), "a", set_mode(Mode::Plan), &Mode::Edit);
    assert_eq!(changed, Decision::Reject(ReceiptCode::Superseded), "it was seen in another mode");
    let auto = decide(&mut rules, &owner(), "b", set_mode(Mode::of("auto")));
    assert_eq!(auto, Decision::Reject(ReceiptCode::Unsupported));
    let mut with = |id: &str, ended, epoch| {
        let situation = Situation { ended, epoch, newest_epoch: 2, ..IDLE };
        rules.decide(&command(id, NOON, prompt()), &owner(), &situation, NOON).0
    };
    assert_eq!(with("c", false, 1), Decision::Reject(ReceiptCode::OldKey));
    assert_eq!(with("d", true, 2), Decision::Reject(ReceiptCode::Superseded), "the session has ended");
    let newer = Content::Control(Control::Newer("dance".into()));
    assert_eq!(decide(&mut rules, &owner(), "e", newer), Decision::Reject(ReceiptCode::Unsupported));
}

#[test]
fn a_person_has_thirty_commands_a_minute_and_five_interrupts() {
    let mut rules = Rules::new(user(1));
    let interrupt = || Content::Control(Control::Interrupt);
    let busy = Decision::Reject(ReceiptCode::Busy);
    let found: Vec<_> = (0..6).map(|n| decide(&mut rules, &owner(), &format!("i{n}"), interrupt())).collect();
    assert_eq!((&found[4], &found[5]), (&Decision::Take, &busy));
    let found: Vec<_> = (0..26).map(|n| decide(&mut rules, &owner(), &format!("p{n}"), prompt())).collect();
    assert_eq!((&found[24], &found[25]), (&Decision::Take, &busy));
    assert_eq!(decide(&mut rules, &signer(1, Role::Linked), "x", prompt()), busy, "it is a person's, not a key's");
    let later = NOON.plus(Duration::from_secs(60));
    assert_eq!(rules.decide(&command("later", later, prompt()), &owner(), &IDLE, later).0, Decision::Take);
}

#[test]
fn bypass_begins_with_a_primary_only() {
    let rules = with_guests();
    assert!(rules.may_begin(&owner(), &Mode::Bypass));
    assert!(!rules.may_begin(&signer(1, Role::Linked), &Mode::Bypass));
    assert!(rules.may_begin(&signer(1, Role::Linked), &Mode::Edit));
    assert!(!rules.may_begin(&signer(2, Role::Primary), &Mode::Ask));
    assert!(!rules.may_begin(&owner(), &Mode::of("auto")));
}

proptest! {
    /// A linked device or a guest never changes a session to bypass, and a guest never changes who may what.
    #[test]
    fn no_guest_gains_a_right(orders in proptest::collection::vec((2u8..6, 0u8..3, 0u64..9), 1..40)) {
        let mut rules = with_guests();
        let before = rules.access.clone();
        for (at, (number, what, version)) in orders.into_iter().enumerate() {
            let content = match what {
                0 => grant(number, May::Approve, version),
                1 => set_mode(Mode::Bypass),
                _ => Content::Control(Control::Stop),
            };
            let decision = decide(&mut rules, &signer(number, Role::Primary), &at.to_string(), content);
            prop_assert!(matches!(decision, Decision::Reject(_)));
        }
        prop_assert_eq!(rules.access, before);
    }
}
