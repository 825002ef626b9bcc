//! Which keys of sessions are old, because a removed device or user knows them.

use ensemble_client::Client;
use ensemble_types::devices::{ListedDevice, Role};
use ensemble_types::refs::Ref;
use ensemble_types::time::Timestamp;
use serde_json::json;

use super::next_key::next_above;
use super::*;
use crate::fixtures::{first_list, listed};
use crate::home::Home;
use crate::known_sessions::KnownSession;
use ensemble_types::ids::UserId;

/// A user with a second device, which is linked.
pub(crate) fn user(second: &AccountKey) -> Account {
    let key = AccountKey::generate();
    let (list, contents) = first_list(&key, [listed(second, Role::Linked)]);
    let client = Client::builder("http://127.0.0.1:9").build().unwrap();
    let own = devices::Own { list, contents };
    Account::new(&Home::of_test_in_memory(), client, key, UserId::generate(), own).unwrap()
}

pub(crate) fn session(me: &Account, id: SessionId, sealed: &str) -> Session {
    let document = json!({
        "id": id, "ref": Ref::of(&id), "ownerId": me.id, "metadata": "", "metadataVersion": 1,
        "encryptionKey": sealed, "agentState": null, "agentStateVersion": 0, "status": "active", "endedAt": null,
        "archived": false, "online": false, "thinking": false, "lastActiveAt": null, "lastSeq": 0, "accessLevel": "owner",
        "keyEpoch": 1, "rekeyNeeded": false, "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
    });
    serde_json::from_value(document).unwrap()
}

/// The same user after the list has changed.
fn with_own(me: &Account, own: devices::Own) -> Account {
    Account::new(&me.home, me.client.clone(), me.key.clone(), me.id, own).unwrap()
}

#[test]
fn a_machine_that_was_removed_knows_a_key_until_one_is_made_without_it() {
    let me = user(&AccountKey::generate());
    let machine: ensemble_types::ids::MachineId = "laptop".parse().unwrap();
    let mut session = session(&me, SessionId::generate(), "AAAA");
    (session.hosted, session.machine_id) = (true, Some(machine.clone()));
    let known = |hostless| KnownSession { hostless, epoch: 4, ..KnownSession::default() };
    assert!(me.may_its_host_read(&session, 4, &known(None)), "it is in no list");
    assert!(me.may_its_host_read(&session, 4, &known(Some(5))), "the server shows the key of before");
    assert!(!me.may_its_host_read(&session, 4, &known(Some(4))) && !me.may_its_host_read(&session, 4, &known(Some(3))));
    let mut next = me.own().list.successor(Timestamp::from_unix_seconds(1));
    let device = listed(&AccountKey::generate(), Role::Machine);
    next.devices.push(ListedDevice { machine_id: Some(machine), ..device });
    let list = me.own().list.next(&devices::signed(&next, &me.key).unwrap()).unwrap();
    let contents = me.own().contents.clone();
    let listed = with_own(&me, devices::Own { list, contents });
    assert!(!listed.may_its_host_read(&session, 4, &known(None)));
    session.hosted = false;
    assert!(!listed.may_its_host_read(&session, 4, &known(None)));
}

#[test]
fn a_ring_is_stale_unless_a_listed_device_sealed_it_to_the_newest_content_key() {
    let (second, stranger, id) = (AccountKey::generate(), AccountKey::generate(), SessionId::generate());
    let mut me = user(&second);
    let sealed = |me: &Account, signer: &AccountKey| {
        let binding = Binding::Session { session: id, owner: me.id };
        seal_ring(&KeyRing::generate(), &me.content_key().unwrap(), binding, signer).unwrap().into_string()
    };
    let (by_first, by_second) = (sealed(&me, &me.key), sealed(&me, &second));
    let stale = |me: &Account, sealed: &str| me.is_stale(&session(me, id, sealed));
    assert!(!stale(&me, &by_first) && !stale(&me, &by_second));
    // Everybody can seal to the content key.
    assert!(stale(&me, &sealed(&me, &stranger)));
    assert!(stale(&me, "AAAA"));
    // The second device is removed. It knows the new content key, and cannot sign for the account.
    let mut next = me.own().list.successor(Timestamp::from_unix_seconds(1));
    next.devices.retain(|device| device.key != second.public_key());
    let contents = me.own().contents.next().unwrap();
    next.content_epoch += 1;
    next.content_public_key = contents.public().unwrap().to_text();
    let list = me.own().list.next(&devices::signed(&next, &me.key).unwrap()).unwrap();
    me = with_own(&me, devices::Own { list, contents });
    assert!(stale(&me, &by_first) && stale(&me, &by_second), "it knows these rings");
    assert!(stale(&me, &sealed(&me, &second)));
    assert!(!stale(&me, &sealed(&me, &me.key)));
}

#[test]
fn the_servers_word_makes_one_key_an_hour_and_a_removal_one_at_any_time() {
    const NOON: u64 = 1_800_000_000;
    let (second, id) = (AccountKey::generate(), SessionId::generate());
    let me = user(&second);
    let sealed = |ring: &KeyRing| {
        let binding = Binding::Session { session: id, owner: me.id };
        seal_ring(ring, &me.content_key().unwrap(), binding, &second).unwrap().into_string()
    };
    let first = KeyRing::generate();
    let mut session = session(&me, id, &sealed(&first));
    let known = |asked| KnownSession { asked, ..KnownSession::default() };
    assert_eq!(me.due_at(&session, &known(None), NOON), None);
    // A device that gave a restored server keys was interrupted, also one that this computer knows nothing of.
    let in_between = Session { encryption_key: Some(sealed(&first.next_by_machine().unwrap())), ..session.clone() };
    assert_eq!(me.due_at(&in_between, &known(Some(NOON)), NOON), Some(Due::Interrupted));
    session.rekey_needed = true;
    assert_eq!(me.due_at(&session, &known(None), NOON), Some(Due::Asked));
    assert_eq!(me.due_at(&session, &known(Some(NOON - 3_599)), NOON), None);
    assert_eq!(me.due_at(&session, &known(Some(NOON - 3_600)), NOON), Some(Due::Asked));
    assert_eq!(me.due_at(&session, &known(Some(NOON + 90_000)), NOON), Some(Due::Asked), "the clock was set back");
    let failed = KnownSession { tried: KeyRing::FIRST_EPOCH + 1, ..known(Some(NOON)) };
    assert_eq!(me.due_at(&session, &failed, NOON), Some(Due::Asked), "the key was not made");
    // What the server calls the epoch, and when it says that the session was used, is no reason and no obstacle.
    for epoch in [-1, 0, 1 << 31, 1 << 53] {
        session.key_epoch = epoch;
        assert_eq!(me.due_at(&session, &known(Some(NOON)), NOON), None, "{epoch}");
    }
    let mut next = me.own().list.successor(Timestamp::from_unix_seconds(1));
    next.devices.retain(|device| device.key != second.public_key());
    let contents = me.own().contents.next().unwrap();
    next.content_epoch += 1;
    next.content_public_key = contents.public().unwrap().to_text();
    let list = me.own().list.next(&devices::signed(&next, &me.key).unwrap()).unwrap();
    let after = with_own(&me, devices::Own { list, contents });
    for epoch in [-1, 1, 1 << 53] {
        (session.key_epoch, session.rekey_needed) = (epoch, false);
        assert_eq!(after.due_at(&session, &known(Some(NOON)), NOON), Some(Due::Removal), "{epoch}");
    }
}

#[test]
fn an_epoch_that_no_ring_has_stops_no_writer() {
    let (me, id) = (user(&AccountKey::generate()), SessionId::generate());
    let mut session = session(&me, id, "AAAA");
    let ring = KeyRing::generate();
    for (level, epoch, lacks) in [
        (AccessLevel::Edit, 1, false),
        (AccessLevel::Edit, 2, true),
        (AccessLevel::Edit, i64::from(KeyRing::LAST_EPOCH), true),
        (AccessLevel::Edit, i64::from(KeyRing::LAST_EPOCH) + 1, false),
        (AccessLevel::Edit, 1 << 53, false),
        (AccessLevel::Edit, i64::MIN, false),
        (AccessLevel::Owner, 2, false),
    ] {
        (session.access_level, session.key_epoch) = (level, epoch);
        assert_eq!(lacks_key(&session, &ring), lacks, "{level:?} {epoch}");
    }
}

#[test]
fn a_ring_that_is_full_has_no_next_key() {
    let mut ring = KeyRing::generate();
    while ring.epoch() < KeyRing::LAST_EPOCH - 1 {
        ring = ring.next_by_machine().unwrap();
    }
    let (between, last) = next_above(&ring, KeyRing::LAST_EPOCH).unwrap();
    assert_eq!((between.len(), last.epoch(), last.floor()), (0, KeyRing::LAST_EPOCH, KeyRing::LAST_EPOCH));
    next_above(&last, KeyRing::FIRST_EPOCH).unwrap_err();
}
