//! A person whose share was removed may have the session's key.

use super::*;

fn taking(user: UserId, removed: bool, version: u64) -> Content {
    let (account, may) = ("account".to_owned(), May::Nothing);
    Content::Control(Control::Access(AccessGrant { user, account, may, version, removed, key: None }))
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
