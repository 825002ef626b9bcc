//! A person whose share was removed may have the session's key.

use super::*;

fn taking(user: UserId, removed: bool, version: u64) -> Content {
    let (account, may) = ("account".to_owned(), May::Nothing);
    Content::Control(Control::Access(AccessGrant { user, account, may, version, removed, key_epoch: None, key: None }))
}

fn grant_of(content: Content) -> AccessGrant {
    match content {
        Content::Control(Control::Access(grant)) => grant,
        _ => unreachable!(),
    }
}

#[test]
fn a_removed_share_makes_the_key_old() {
    let mut room = room();
    room.begin();
    let (guest, other) = (UserId::generate(), UserId::generate());
    room.grant(guest, May::Prompt, 1);
    room.send(taking(guest, false, 2));
    assert_eq!(room.core.kept.old_key, None, "who loses a right reads on");
    room.send(taking(guest, true, 3));
    assert_eq!(room.core.kept.old_key, Some(1));
    // The command comes again when it is no longer remembered.
    room.core.set_key(2, "k2".into());
    assert_eq!(room.send(taking(guest, true, 3)).outcome, ReceiptOutcome::Done);
    assert_eq!(room.core.kept.old_key, Some(1));
    // The removed guest has sealed the owner's message again, with a key from before the one that the machine has.
    room.core.set_key(3, "k3".into());
    room.send(taking(other, true, 1));
    assert_eq!(room.core.kept.old_key, Some(3));
    let again = room_by(room.owner, room.core.kept.clone());
    assert_eq!(again.core.kept.old_key, Some(3));
    // The owner has given the session a key since, and the server has kept it from the machine.
    let named = |epoch| {
        let grant = grant_of(taking(UserId::generate(), true, 1));
        Content::Control(Control::Access(AccessGrant { key_epoch: Some(epoch), ..grant }))
    };
    room.send(named(5));
    assert_eq!(room.core.kept.old_key, Some(5));
    // It wakes with the key that the device which has removed the person has made after that.
    room.core.set_key(7, "k7".into());
    let owner = room.signer(room.owner, Role::Primary).key;
    room.core.key_is_by((7, owner.clone()));
    room.send(named(6));
    assert_eq!(room.core.kept.old_key, Some(6));
    // Another device has made the newest one, and may have given it to the person.
    room.core.set_key(8, "k8".into());
    for maker in [(8, "another".to_owned()), (7, owner)] {
        room.core.key_is_by(maker);
        room.send(named(6));
        assert_eq!(room.core.kept.old_key, Some(8));
    }
    // What counts is another right, which the removed person has had the server keep back until now.
    room.send(taking(guest, false, 9));
    let late = AccessGrant { key_epoch: Some(9), ..grant_of(taking(guest, true, 8)) };
    assert_eq!(room.send(Content::Control(Control::Access(late))).code, Some(ReceiptCode::Superseded));
    assert_eq!(room.core.kept.old_key, Some(9));
    for far in [u32::MAX, 169] {
        room.send(named(far));
        assert_eq!(room.core.kept.old_key, Some(9), "{far}: it would take the machine's last keys");
    }
}

#[test]
fn the_receipt_of_a_removal_is_the_first_message_of_its_step() {
    let mut room = room();
    room.begin();
    let content = taking(UserId::generate(), true, 1);
    let list = KnownList { version: 1, digest: "d".into() };
    let message = Message { local_id: "c-1".into(), at: room.now, list, n: None, content };
    let signer = room.signer(room.owner, Role::Primary);
    room.core.command(9, Command { message, signer, epoch: 1, list_is_withheld: false, key_is_missing: false });
    let changes = room.core.take_effects().changes;
    let position = |wanted: fn(&Change) -> bool| changes.iter().position(wanted).unwrap();
    assert!(position(|change| *change == Change::OldKey(1)) < position(|change| matches!(change, Change::Say(_))));
    let first = changes.iter().find_map(|change| match change {
        Change::Say(message) => Some(Message::read(&message.body).unwrap().content),
        _ => None,
    });
    assert!(matches!(first, Some(Content::Receipt(_))), "{first:?}");
}
