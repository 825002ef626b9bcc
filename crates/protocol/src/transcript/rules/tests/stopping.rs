//! What takes a right away, and what only stops, always passes.

use std::collections::BTreeMap;

use super::*;

/// The milliseconds of [`NOON`].
const NOON_MS: u64 = 1_800_000_000_000;

#[test]
fn a_right_counts_by_its_version_whatever_key_it_was_sealed_with() {
    let mut rules = Rules::new(user(1));
    assert_eq!(decide(&mut rules, &owner(), "a", grant(3, May::Approve, 1)), Decision::Take);
    let mut old = |id: &str, content, list_is_withheld| {
        let situation = Situation { newest_epoch: 2, list_is_withheld, ..IDLE };
        rules.decide(&command(id, NOON, content), &owner(), &situation, NOON).0
    };
    assert_eq!(old("p", prompt(), false), Decision::Reject(ReceiptCode::OldKey));
    assert_eq!(
        old("w", grant(3, May::Prompt, 2), true),
        Decision::Reject(ReceiptCode::Busy),
        "a right waits for the list"
    );
    assert_eq!(old("n", grant(3, May::Nothing, 3), true), Decision::Take, "what takes one away does not");
    assert_eq!(
        old("l", grant(3, May::Approve, 2), false),
        Decision::Reject(ReceiptCode::Superseded),
        "a lower version"
    );
    assert_eq!(rules.right(&signer(3, Role::Primary)), Right::Nothing);
}

#[test]
fn an_owner_takes_rights_away_without_a_limit_and_a_guest_has_one() {
    let mut rules = with_guests();
    let most = limits::MOST_COMMANDS;
    let mut sent = |who: &Signer| -> Vec<_> {
        let none = |n: usize| grant(3, May::Nothing, n as u64 + 2);
        (0..=most).map(|n| decide(&mut rules, who, &format!("n{n}"), none(n))).collect()
    };
    assert!(sent(&owner()).iter().all(|decision| *decision == Decision::Take));
    let of_guest = sent(&signer(2, Role::Primary));
    assert_eq!(of_guest[0], Decision::Reject(ReceiptCode::NotAllowed));
    assert_eq!(of_guest[most], Decision::Reject(ReceiptCode::Busy));
}

#[test]
fn a_right_of_a_clock_that_is_far_ahead_has_no_effect() {
    let mut rules = with_guests();
    let before = rules.access.clone();
    let five_minutes = 5 * 60 * 1_000;
    for (id, may) in [("a", May::Approve), ("b", May::Nothing)] {
        for (n, version) in [NOON_MS + five_minutes + 1, u64::MAX].into_iter().enumerate() {
            let found = decide(&mut rules, &owner(), &format!("{id}{n}"), grant(2, may.clone(), version));
            assert_eq!(found, Decision::Reject(ReceiptCode::Stale), "{may:?} {version}");
        }
    }
    assert_eq!(rules.access, before);
    assert_eq!(decide(&mut rules, &owner(), "c", grant(2, May::Prompt, NOON_MS + five_minutes)), Decision::Take);
    let later = NOON.plus(Duration::from_secs(1));
    let version = NOON_MS + five_minutes + 1_000;
    let message = command("d", later, grant(2, May::Nothing, version));
    assert_eq!(rules.decide(&message, &owner(), &IDLE, later).0, Decision::Take, "a good clock has come so far");
    assert_eq!(rules.right(&signer(2, Role::Primary)), Right::Nothing);
}

#[test]
fn of_two_rights_with_one_version_none_counts_and_the_same_again_is_done() {
    let superseded = Decision::Reject(ReceiptCode::Superseded);
    let orders = [
        [(May::Approve, Decision::Take), (May::Nothing, Decision::Take), (May::Approve, superseded.clone())],
        [(May::Nothing, Decision::Take), (May::Approve, superseded.clone()), (May::Nothing, Decision::Take)],
        [(May::Approve, Decision::Take), (May::Prompt, superseded), (May::Approve, Decision::Take)],
    ];
    for order in orders {
        let mut rules = Rules::new(user(1));
        for (n, (may, expected)) in order.iter().enumerate() {
            let found = decide(&mut rules, &owner(), &n.to_string(), grant(3, may.clone(), 7));
            assert_eq!(found, *expected, "{n} of {order:?}");
        }
        let takes_away = order.iter().any(|(may, _)| *may == May::Nothing);
        let expected = if takes_away { Right::Nothing } else { Right::Approve };
        assert_eq!(rules.right(&signer(3, Role::Primary)), expected, "{order:?}");
    }
    let of_version = |may| {
        let Content::Control(Control::Access(grant)) = grant(3, may, 7) else { unreachable!() };
        grant
    };
    let (none, approve) = (of_version(May::Nothing), of_version(May::Approve));
    for order in [[none.clone(), approve.clone()], [approve, none.clone()]] {
        assert!(Access::of_grants(order).grants().eq([&none]), "it is the same from the disk");
    }
}

/// Each command, and whether it only stops.
fn commands() -> Vec<(Content, bool)> {
    let resume = Content::Control(Control::Resume(Resume::default()));
    let set_model = Content::Control(Control::SetModel(SetModel { model: "m".to_owned() }));
    vec![
        (Content::Control(Control::Interrupt), true),
        (Content::Control(Control::Stop), true),
        (grant(3, May::Nothing, 8), true),
        (answer("d", Some("never")), true),
        (answer("d", Some("for-good")), true),
        (answer("d", Some("once")), false),
        (answer("d", Some("always")), false),
        (answer("d", Some("newer")), false),
        (answer("d", Some("made-up")), false),
        (prompt(), false),
        (resume, false),
        (set_model, false),
        (set_mode(Mode::Plan), false),
        (grant(3, May::Prompt, 9), false),
    ]
}

fn with_options(situation: Situation<'_>, mut check: impl FnMut(&Situation<'_>)) {
    let kinds = [
        ("once", OptionKind::AllowOnce),
        ("never", OptionKind::RejectOnce),
        ("always", OptionKind::AllowAlways),
        ("for-good", OptionKind::RejectAlways),
        ("newer", OptionKind::of("something newer")),
    ];
    let options = kinds.map(|(id, kind)| PermissionOption { option_id: id.to_owned(), name: id.to_owned(), kind });
    let open = OpenRequest { digest: "d".to_owned(), options: Some(options.into()) };
    check(&Situation { open: Some(&open), ..situation });
}

#[test]
fn what_only_stops_passes_while_a_list_or_a_key_is_missing() {
    let withheld = Situation { list_is_withheld: true, ..IDLE };
    let without_key = Situation { key_is_missing: true, ..IDLE };
    for (situation, code) in [(withheld, ReceiptCode::Busy), (without_key, ReceiptCode::OldKey)] {
        with_options(situation, |situation| {
            for (content, only_stops) in commands() {
                for role in [Role::Primary, Role::Linked] {
                    let message = command("c", NOON, content.clone());
                    let found = with_guests().decide(&message, &signer(1, role), situation, NOON).0;
                    let expected = if only_stops { Decision::Take } else { Decision::Reject(code.clone()) };
                    assert_eq!(found, expected, "{content:?}");
                }
                let message = command("c", NOON, content.clone());
                let removed = Signer { role: None, ..owner() };
                let found = with_guests().decide(&message, &removed, situation, NOON).0;
                assert_eq!(found, Decision::Reject(ReceiptCode::UnknownKey), "{content:?} by a removed device");
                let found = with_guests().decide(&message, &signer(2, Role::Primary), situation, NOON).0;
                assert_ne!(found, Decision::Take, "{content:?} by a guest, of whom the host's own list says nothing");
            }
        });
    }
    let question = OpenRequest { digest: "d".to_owned(), options: None };
    let situation = Situation { open: Some(&question), list_is_withheld: true, ..IDLE };
    let decided = |id: &str, content| with_guests().decide(&command(id, NOON, content), &owner(), &situation, NOON).0;
    assert_eq!(decided("a", answer("d", None)), Decision::Take, "a question that is refused");
    let (request_id, digest) = ("r".to_owned(), "d".to_owned());
    let answered = Answer { request_id, digest, option_id: None, answers: Some(BTreeMap::new()), message: None };
    assert_eq!(decided("b", Content::Answer(answered)), Decision::Reject(ReceiptCode::Busy));
}

#[test]
fn a_stop_under_an_old_key_is_sent_again_where_the_host_has_the_new_one() {
    let situation = Situation { newest_epoch: 2, ..IDLE };
    let mut rules = Rules::new(user(1));
    let stop = command("c", NOON, Content::Control(Control::Stop));
    assert_eq!(rules.decide(&stop, &owner(), &situation, NOON).0, Decision::Reject(ReceiptCode::OldKey));
}
