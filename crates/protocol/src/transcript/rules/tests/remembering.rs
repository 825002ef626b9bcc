//! What is remembered of commands: none is taken twice, and none that was rejected is taken later.

use super::*;
use crate::transcript::rules::memory::{CLOCK, CONTROL_AGE, MOST_EARLY, MOST_TAKEN, PROMPT_AGE};

#[test]
fn a_command_is_taken_once_and_not_late() {
    let at = |content: Content, at, now| Rules::new(user(1)).decide(&command("c", at, content), &owner(), &IDLE, now).0;
    let stop = || Content::Control(Control::Stop);
    let stale = Decision::Reject(ReceiptCode::Stale);
    let second = Duration::from_secs(1);
    for (content, age) in [(prompt as fn() -> Content, PROMPT_AGE), (stop, CONTROL_AGE)] {
        let last = NOON.plus(age).plus(CLOCK);
        assert_eq!(at(content(), NOON, last), Decision::Take);
        assert_eq!(at(content(), NOON, last.plus(second)), stale);
        assert_eq!(at(content(), NOON.plus(CLOCK), NOON), Decision::Take);
        assert_eq!(at(content(), NOON.plus(CLOCK).plus(second), NOON), stale);
    }
    let year = NOON.plus(Duration::from_secs(365 * 86_400));
    assert_eq!(at(grant(2, May::Nothing, 1), NOON, year), Decision::Take, "a revocation reaches a machine that slept");

    let mut rules = Rules::new(user(1));
    assert_eq!(decide(&mut rules, &owner(), "c", prompt()), Decision::Take);
    assert_eq!(decide(&mut rules, &owner(), "c", stop()), Decision::Reject(ReceiptCode::Repeated));
    assert_eq!(decide(&mut rules, &signer(1, Role::Linked), "c", prompt()), Decision::Take, "another device");
    let memory = Memory::of_taken(rules.memory.taken().cloned(), None);
    let mut kept = Rules::kept(user(1), rules.access.clone(), memory);
    assert_eq!(decide(&mut kept, &owner(), "c", prompt()), Decision::Reject(ReceiptCode::Repeated), "after a restart");
}

#[test]
fn a_rejected_command_does_not_come_back_either() {
    let mut rules = Rules::new(user(1));
    let guest = signer(3, Role::Primary);
    assert_eq!(decide(&mut rules, &guest, "c", prompt()), Decision::Reject(ReceiptCode::NotAllowed));
    assert_eq!(decide(&mut rules, &owner(), "g", grant(3, May::Prompt, 1)), Decision::Take);
    assert_eq!(decide(&mut rules, &guest, "c", prompt()), Decision::Reject(ReceiptCode::Repeated));
}

#[test]
fn after_a_loss_nothing_from_before_is_taken() {
    let mut rules = Rules::lost(user(1), Access::default(), NOON);
    let mut at = |id: &str, at, content| {
        rules.decide(&command(id, at, content), &owner(), &IDLE, NOON.plus(Duration::from_secs(60))).0
    };
    assert_eq!(at("a", Timestamp::from_micros(NOON.micros() - 1), prompt()), Decision::Reject(ReceiptCode::Stale));
    assert_eq!(at("b", NOON, prompt()), Decision::Take);
    let before = Timestamp::from_micros(NOON.micros() - 1);
    assert_eq!(at("c", before, grant(2, May::Prompt, 9)), Decision::Reject(ReceiptCode::Stale), "an old right");
    assert_eq!(at("d", NOON, grant(2, May::Prompt, 1)), Decision::Take);
}

#[test]
fn a_full_memory_forgets_the_oldest_and_takes_nothing_as_old() {
    let one = |person, number: usize, at| Taken {
        user: Some(user(person)),
        key: "k".to_owned(),
        local_id: number.to_string(),
        at,
        taken: NOON,
        rejected: None,
    };
    let later = |number: usize| NOON.plus(Duration::from_millis(number as u64));
    let mut memory = Memory::of_taken((0..=MOST_TAKEN).map(|number| one(2, number, later(number))), None);
    assert_eq!(memory.taken().count(), MOST_TAKEN);
    assert_eq!(memory.check(&prompt(), &one(2, 0, NOON)), Err(ReceiptCode::Stale), "it was forgotten");
    assert_eq!(memory.check(&prompt(), &one(2, MOST_TAKEN + 1, later(1))), Ok(()));
    assert_eq!(memory.check(&prompt(), &one(1, 0, NOON)), Ok(()), "another person's commands are not affected");
    // A server shows again what is too late in any case.
    for number in 0..10 {
        memory.remember(one(2, 10_000 + number, NOON.minus(PROMPT_AGE)));
    }
    assert_eq!(memory.check(&prompt(), &one(2, 1, later(1))), Err(ReceiptCode::Repeated), "what could be taken stays");
}

#[test]
fn a_command_that_came_while_the_list_was_withheld_is_not_done_later() {
    let mut rules = Rules::new(owner().user);
    let withheld = Situation { list_is_withheld: true, ..IDLE };
    let prompt = command("p", NOON, prompt());
    assert_eq!(rules.decide(&prompt, &owner(), &withheld, NOON).0, Decision::Reject(ReceiptCode::Busy));
    assert_eq!(rules.decide(&prompt, &owner(), &IDLE, NOON).0, Decision::Reject(ReceiptCode::Repeated));
}

#[test]
fn a_command_of_a_key_in_no_list_is_not_done_when_the_key_is_listed() {
    let mut rules = Rules::new(user(1));
    let unknown = Signer { role: None, ..owner() };
    assert_eq!(decide(&mut rules, &unknown, "c", prompt()), Decision::Reject(ReceiptCode::UnknownKey));
    assert_eq!(decide(&mut rules, &unknown, "c", prompt()), Decision::Reject(ReceiptCode::UnknownKey));
    let memory = Memory::of_taken(rules.memory.taken().cloned(), None);
    let kept = Rules::kept(user(1), rules.access.clone(), memory);
    for mut rules in [rules, kept] {
        assert_eq!(decide(&mut rules, &owner(), "c", prompt()), Decision::Reject(ReceiptCode::Repeated));
        assert_eq!(decide(&mut rules, &owner(), "d", prompt()), Decision::Take);
    }
}

#[test]
fn a_command_from_the_future_is_not_done_when_its_time_has_come() {
    for ahead in [CLOCK + Duration::from_secs(12), Duration::from_secs(3 * 86_400)] {
        let mut rules = Rules::new(user(1));
        let at = NOON.plus(ahead);
        let early = command("c", at, prompt());
        assert_eq!(rules.decide(&early, &owner(), &IDLE, NOON).0, Decision::Reject(ReceiptCode::Stale));
        // Something comes in between, and what is old is forgotten.
        assert_eq!(rules.decide(&command("d", at, prompt()), &owner(), &IDLE, at).0, Decision::Take);
        assert_eq!(rules.decide(&early, &owner(), &IDLE, at).0, Decision::Reject(ReceiptCode::Repeated));
    }
}

#[test]
fn commands_from_the_future_leave_room_for_those_of_today() {
    let mut rules = Rules::new(user(1));
    let stolen = signer(1, Role::Linked);
    let year = NOON.plus(Duration::from_secs(365 * 86_400));
    for number in 0..MOST_TAKEN + 2 {
        let early = command(&number.to_string(), year, prompt());
        let expected = if number < MOST_EARLY { Decision::Reject(ReceiptCode::Stale) } else { Decision::Ignore };
        assert_eq!(rules.decide(&early, &stolen, &IDLE, NOON).0, expected, "{number}");
    }
    // What has no age is not rejected for its time, and keeps no place longer than others.
    let early = command("g", year, grant(2, May::Nothing, 1));
    assert_eq!(rules.decide(&early, &stolen, &IDLE, NOON).1.map(|kept| kept.at), Some(NOON));
    assert_eq!(decide(&mut rules, &owner(), "c", prompt()), Decision::Take);
}

#[test]
fn what_gets_a_receipt_is_kept_once_with_what_became_of_it() {
    let mut rules = with_guests();
    let newer = || Content::Control(Control::Newer("dance".into()));
    let unknown = Signer { role: None, key: "k".to_owned(), ..owner() };
    let rows = [
        (owner(), prompt(), NOON, None),
        (owner(), newer(), NOON, Some(ReceiptCode::Unsupported)),
        (owner(), prompt(), NOON.minus(PROMPT_AGE * 2), Some(ReceiptCode::Stale)),
        (signer(4, Role::Primary), prompt(), NOON, Some(ReceiptCode::NotAllowed)),
        (unknown, prompt(), NOON, Some(ReceiptCode::UnknownKey)),
    ];
    for (number, (who, content, at, rejected)) in rows.into_iter().enumerate() {
        let command = command(&number.to_string(), at, content);
        let (_, kept) = rules.decide(&command, &who, &IDLE, NOON);
        assert_eq!(kept.map(|kept| kept.rejected), Some(rejected), "{command:?}");
        assert_eq!(rules.decide(&command, &who, &IDLE, NOON).1, None, "{command:?}");
    }
}

#[test]
fn strangers_share_one_place_and_take_none_of_people() {
    let mut rules = with_guests();
    let unknown = Decision::Reject(ReceiptCode::UnknownKey);
    let sent = |rules: &mut Rules, number: usize, now| {
        let who = Signer { user: UserId::generate(), key: format!("k{number}"), role: None, account: String::new() };
        rules.decide(&command("c", now, prompt()), &who, &IDLE, now).0
    };
    let first: Vec<_> = (0..11).map(|number| sent(&mut rules, number, NOON)).collect();
    assert_eq!((&first[9], &first[10]), (&unknown, &Decision::Ignore), "ten a minute");
    let mut now = NOON;
    let mut answered = 10;
    for number in 11..MOST_TAKEN + 100 {
        now = now.plus(Duration::from_secs(6));
        answered += usize::from(sent(&mut rules, number, now) == unknown);
    }
    assert_eq!(answered, MOST_TAKEN, "then none gets an answer, until some are forgotten");
    for who in [owner(), signer(2, Role::Primary)] {
        assert_eq!(rules.decide(&command("p", now, prompt()), &who, &IDLE, now).0, Decision::Take);
    }
    let listed = Signer { key: "k0".to_owned(), ..owner() };
    let again = rules.decide(&command("c", NOON, prompt()), &listed, &IDLE, now).0;
    assert_eq!(again, Decision::Reject(ReceiptCode::Repeated), "the oldest is still remembered");
}

#[test]
fn accounts_that_a_server_makes_take_no_place_of_the_owner() {
    let mut rules = Rules::new(user(1));
    let found: Vec<_> = (0..300)
        .map(|number| {
            let who = Signer { user: UserId::generate(), key: format!("k{number}"), ..signer(9, Role::Primary) };
            decide(&mut rules, &who, "c", prompt())
        })
        .collect();
    assert_eq!(found[255], Decision::Reject(ReceiptCode::NotAllowed));
    assert_eq!(found[256], Decision::Reject(ReceiptCode::Busy));
    assert_eq!(found[299], Decision::Ignore);
    let later = NOON.plus(Duration::from_secs(60));
    assert_eq!(rules.decide(&command("p", later, prompt()), &owner(), &IDLE, later).0, Decision::Take);
}

proptest! {
    /// Whatever a server withholds, repeats or reorders, commands or lists: of what got a receipt nothing is taken again.
    #[test]
    fn nothing_is_taken_after_its_receipt(steps in proptest::collection::vec((0u8..20, 0u64..6 * 3_600, proptest::bool::ANY), 1..80)) {
        let mut rules = Rules::new(user(1));
        let (mut now, mut answered) = (NOON, Vec::new());
        for (number, pause, is_listed) in steps {
            now = now.plus(Duration::from_secs(pause));
            // Each command has one time of its own, at which it was signed.
            let at = NOON.plus(Duration::from_secs(u64::from(number) * 1_800));
            let content = if number % 2 == 0 { prompt() } else { Content::Control(Control::Stop) };
            let who = Signer { role: Some(Role::Primary).filter(|_| is_listed), ..owner() };
            let (decision, _) = rules.decide(&command(&number.to_string(), at, content), &who, &IDLE, now);
            prop_assert!(decision != Decision::Take || !answered.contains(&number), "{} was taken later", number);
            if decision != Decision::Ignore {
                answered.push(number);
            }
        }
    }
}
