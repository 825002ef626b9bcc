//! What is remembered of sessions, and for how long.

use ensemble_types::shares::ShareLevel;
use serde_json::json;

use super::*;

const ORIGIN: &str = "https://ensemble.example";

fn session() -> Session {
    let document = json!({
        "id": SessionId::generate(), "ref": "4d6f8h2j", "ownerId": UserId::generate(), "metadata": "", "metadataVersion": 1,
        "encryptionKey": "AAAA", "agentState": null, "agentStateVersion": 0, "status": "active", "endedAt": null,
        "archived": false, "online": false, "thinking": false, "lastActiveAt": null, "lastSeq": 0, "accessLevel": "owner",
        "createdAt": "2026-03-26T00:00:00.000Z", "updatedAt": "2026-03-26T00:00:00.000Z", "hosted": false,
        "keyEpoch": 1, "contentEpoch": 1, "rekeyNeeded": false,
    });
    serde_json::from_value(document).unwrap()
}

/// A grant that is older than the floor counts for nothing, so who sets an older floor brings removed people back.
#[test]
fn the_highest_floor_is_remembered() {
    let home = Home::of_test_in_memory();
    let session = session();
    let first = KeyRing::generate();
    let (second, by_machine) = (first.next().unwrap(), first.next_by_machine().unwrap().next_by_machine().unwrap());
    assert_eq!((second.floor(), by_machine.floor(), by_machine.epoch()), (2, 1, 3));
    for ring in [&first, &second, &by_machine] {
        home.remember_session(ORIGIN, &session, Some(ring)).unwrap();
    }
    let known = home.known_session(ORIGIN, session.id).unwrap();
    assert_eq!((known.epoch, known.floor), (3, 2));
}

#[test]
fn a_guest_makes_one_key_an_hour_and_takes_none_from_others() {
    let home = Home::of_test_in_memory();
    let (session, ann, bob) = (session(), UserId::generate(), UserId::generate());
    home.remember_session(ORIGIN, &session, Some(&KeyRing::generate())).unwrap();
    let note = |is_asked, guests: &[UserId], now| {
        home.note_cause(ORIGIN, session.id, 2, (is_asked, &guests.iter().copied().collect()), now).unwrap();
        home.known_session(ORIGIN, session.id).unwrap()
    };
    let known = note(false, &[ann], 10_000);
    assert!(!known.may_renew(ann, 2, 13_599) && known.may_renew(ann, 2, 13_600));
    assert!(known.may_renew(bob, 2, 10_000) && known.may_ask(2, 10_000));
    assert!(known.may_renew(ann, 1, 10_000), "the key was not made");
    let known = note(true, &[bob], 12_000);
    assert!(!known.may_renew(ann, 2, 12_000) && !known.may_renew(bob, 2, 12_000) && !known.may_ask(2, 12_000));
    let known = note(false, &[bob], 20_000);
    assert!(known.may_ask(2, 20_000) && known.asked == Some(12_000), "it is not asked again");
    assert_eq!(known.renewed.into_keys().collect::<Vec<_>>(), [bob], "what is over is forgotten");
}

/// A program was killed before it had given a new key to all people, and a machine has made the next one since: they still wait.
#[test]
fn people_wait_for_a_ring_that_continues_the_one_that_was_made() {
    let home = Home::of_test_in_memory();
    let session = session();
    let made = KeyRing::generate().next().unwrap();
    let recipients = Recipients::from([(UserId::generate(), ShareLevel::View)]);
    home.begin_rekey(ORIGIN, session.id, &made, &recipients, None).unwrap();
    let unfinished = home.unfinished(ORIGIN, session.id).unwrap().unwrap();
    assert!(unfinished.is_for(&made) && unfinished.is_for(&made.next_by_machine().unwrap()));
    assert!(!unfinished.is_for(&made.next().unwrap()), "a device has made it, and has given it to the people");
    assert!(!unfinished.is_for(&KeyRing::generate().next().unwrap()), "another key of the same epoch");
    // A program is killed before the server has the next key.
    let next = made.next().unwrap();
    home.begin_rekey(ORIGIN, session.id, &next, &recipients, Some(unfinished)).unwrap();
    let waiting = |ring| home.unfinished(ORIGIN, session.id).unwrap().unwrap().of(ring);
    assert!(waiting(&made).is_some() && waiting(&next).is_some() && waiting(&next.next().unwrap()).is_none());
}

/// A server that shows an old key again and again, and keeps what it refuses, does not fill a ring.
#[test]
fn lost_keys_are_replaced_once_an_hour() {
    let home = Home::of_test_in_memory();
    let (session, ring) = (session(), KeyRing::generate());
    home.remember_session(ORIGIN, &session, Some(&ring.next().unwrap())).unwrap();
    let known = || home.known_session(ORIGIN, session.id).unwrap();
    assert!(known().lost(&ring) == 1 && known().may_replace_lost(10_000));
    let begin =
        |now| home.begin_replacing(ORIGIN, session.id, &ring.next().unwrap().next().unwrap(), BTreeSet::new(), now);
    begin(10_000).unwrap();
    assert!(known().may_replace_lost(10_001), "what was begun is completed");
    // The server has said that it has another key.
    home.end_replacing(ORIGIN, session.id, 0).unwrap();
    assert!(!known().may_replace_lost(13_599) && known().may_replace_lost(13_600));
    begin(20_000).unwrap();
    home.remember_session(ORIGIN, &session, Some(&ring.next().unwrap().next().unwrap())).unwrap();
    assert!(!known().may_replace_lost(20_001), "it was completed");
    assert!(known().may_ask(3, 20_001), "what the server asks for is another matter");
}

/// Two devices have made a key of the same epoch. The one that has used its own knows who had that.
#[test]
fn another_key_of_an_epoch_is_a_lost_one() {
    let home = Home::of_test_in_memory();
    let (session, [bob, eve]) = (session(), [UserId::generate(), UserId::generate()]);
    let first = KeyRing::generate();
    let (mine, other) = (first.next().unwrap(), first.next().unwrap());
    let used = |ring: &KeyRing| home.note_used(ORIGIN, session.id, ring, BTreeSet::from([bob])).unwrap();
    home.remember_session(ORIGIN, &session, Some(&first)).unwrap();
    let known = || home.known_session(ORIGIN, session.id).unwrap();
    let lost = || [&first, &mine, &other, &mine.next().unwrap(), &other.next().unwrap()].map(|ring| known().lost(ring));
    assert_eq!(lost(), [0; 5], "none was used");
    assert!(used(&mine));
    assert_eq!(lost(), [1, 0, 1, 0, 1]);
    let may_have = |ring: &KeyRing| [bob, eve].map(|user| known().may_have_next(ring, user));
    assert_eq!([may_have(&other), may_have(&mine), may_have(&first)], [[true, false], [true, true], [true, true]]);
    let of_lost = |ring: &KeyRing| known().people_of_lost(ring).len();
    assert_eq!([&other, &first, &other.next().unwrap(), &mine].map(of_lost), [1, 1, 1, 0]);
    let of = |ring: &KeyRing| known().people_of(ring).map(BTreeSet::len);
    assert_eq!([of(&mine), of(&other), of(&first), of(&mine.next().unwrap())], [Some(1), None, None, None]);
    home.note_person(ORIGIN, session.id, &other, eve).unwrap();
    assert_eq!(of(&mine), Some(1), "she was given another key");
    home.note_person(ORIGIN, session.id, &mine, eve).unwrap();
    assert_eq!(of(&mine), Some(2));
    // Another program that is slower, or that has judged the other key before this one was made.
    for ring in [&first, &other, &other.next().unwrap()] {
        assert!(!used(ring));
        assert_eq!(of(&mine), Some(2));
    }
    // A key of a machine does not hide which one a person's device has made.
    let by_machine = mine.next_by_machine().unwrap();
    assert!(used(&by_machine));
    assert_eq!([&other, &mine, &by_machine].map(|ring| known().lost(ring)), [1, 1, 0]);
    assert!(!known().may_have_next(&other, eve) && known().may_have_next(&mine, eve));
    // A newer key was read: another device of the owner knows who has it.
    home.remember_session(ORIGIN, &session, Some(&by_machine.next().unwrap())).unwrap();
    assert_eq!((of_lost(&mine), known().lost(&mine)), (0, 2));
}

/// A program that is killed after it has replaced lost keys, and before it has noted that, does not take its own key for another one.
#[test]
fn a_key_that_was_to_replace_lost_ones_is_no_other_one() {
    let home = Home::of_test_in_memory();
    let (session, first) = (session(), KeyRing::generate());
    let mine = first.next().unwrap().next().unwrap();
    home.remember_session(ORIGIN, &session, Some(&mine)).unwrap();
    assert!(home.note_used(ORIGIN, session.id, &mine, BTreeSet::new()).unwrap());
    let between = first.next_by_machine().unwrap().next_by_machine().unwrap();
    let last = between.next().unwrap();
    home.begin_replacing(ORIGIN, session.id, &last, BTreeSet::new(), 10_000).unwrap();
    let known = || home.known_session(ORIGIN, session.id).unwrap();
    assert_eq!([&first, &between, &last].map(|ring| known().lost(ring)), [2, 1, 0]);
    assert!(known().may_replace_lost(10_001));
    home.remember_session(ORIGIN, &session, Some(&last)).unwrap();
    assert_eq!([&between, &last, &last.next().unwrap()].map(|ring| known().lost(ring)), [1, 0, 0]);
    assert!(home.note_used(ORIGIN, session.id, &last, BTreeSet::new()).unwrap());
    assert_eq!([&mine, &last].map(|ring| known().lost(ring)), [1, 0]);
}
