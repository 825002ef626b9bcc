//! A server that was restored from a backup.

use super::*;

/// A room whose messages the server has, up to its last one.
fn confirmed() -> Room {
    let mut room = room();
    room.begin();
    room.core.seen(100);
    room.core.sent(room.core.kept.n);
    room.settle();
    assert_eq!(room.core.kept.confirmed(), room.core.kept.n);
    room
}

fn errors(room: &Room) -> usize {
    room.said.iter().filter(|said| matches!(said.content, Content::Error(_))).count()
}

fn receipts(room: &Room) -> usize {
    room.said.iter().filter(|said| matches!(said.content, Content::Receipt(_))).count()
}

fn lacks(room: &Room, upto: u64) -> Lacks {
    let known = room.core.kept.behind.as_ref().map(|behind| behind.from);
    Lacks { upto, after: 20, last: 120, known }
}

#[test]
fn what_the_server_had_confirmed_is_to_be_sent_again_before_what_is_new() {
    let mut room = confirmed();
    let n = room.core.kept.n;
    room.core.restored(0, 60);
    room.settle();
    let kept = &room.core.kept;
    assert_eq!((kept.behind.as_ref().unwrap().upto, kept.seen), (Some(n), 0));
    assert!(kept.unsent.iter().all(|message| message.n > n), "what says so is new");
    assert_eq!(errors(&room), 1);

    // The sender and the reader both notice it. It is one restore.
    assert!(!room.core.lacks(&Lacks { known: None, ..lacks(&room, n) }));
    room.core.restored(0, 60);
    room.settle();
    assert_eq!(room.core.kept.behind.as_ref().unwrap().from, room.now);

    let from = room.core.kept.behind.as_ref().unwrap().from;
    room.core.sent_again(from.plus(Duration::from_secs(1)));
    assert_eq!(room.core.kept.behind.as_ref().unwrap().upto, Some(n), "that was another time");
    room.core.sent_again(from);
    assert_eq!(room.core.kept.behind.as_ref().unwrap().upto, None);
}

#[test]
fn what_shows_a_restore_is_not_taken_for_what_was_confirmed_before() {
    let mut room = confirmed();
    let n = room.core.kept.n;
    room.prompt("more");
    assert!(room.core.kept.n > n);
    // The server has taken the new messages under numbers that old ones had.
    assert!(room.core.lacks(&lacks(&room, n)));
    room.core.sent(room.core.kept.n);
    room.settle();
    let kept = &room.core.kept;
    assert_eq!(kept.behind.as_ref().unwrap().upto, Some(n));
    assert_eq!(kept.seen, 20, "what people have sent meanwhile is read");
}

#[test]
fn a_server_that_is_behind_again_and_again_is_said_once_in_ten_minutes() {
    let mut room = confirmed();
    let n = room.core.kept.n;
    let mut froms = Vec::new();
    for _ in 0..3 {
        assert!(room.core.lacks(&lacks(&room, n)));
        room.settle();
        froms.push(room.core.kept.behind.as_ref().unwrap().from);
        room.core.sent_again(froms[froms.len() - 1]);
    }
    assert_eq!(errors(&room), 1);
    assert_eq!((froms[1].since(froms[0]).as_secs(), froms[2].since(froms[1]).as_secs()), (15, 30));
    room.now = room.now.plus(Duration::from_secs(601));
    room.core.set_time(room.now);
    assert!(room.core.lacks(&lacks(&room, n)));
    room.settle();
    assert_eq!(errors(&room), 2);
}

#[test]
fn a_command_that_is_read_again_is_not_done_twice() {
    let mut room = confirmed();
    let (signer, sent) = (room.signer(room.owner, Role::Primary), prompt("once"));
    room.resend(signer.clone(), "c-1", sent.clone()).unwrap();
    room.core.restored(0, 60);
    room.settle();
    let said = room.said.len();
    room.give(40, stored(&room, "c-1", sent), signer);
    assert_eq!(room.said.len(), said, "not even a receipt comes twice");
}

fn stored(room: &Room, local_id: &str, content: Content) -> Message {
    let list = KnownList { version: 1, digest: "d".into() };
    Message { local_id: local_id.into(), at: room.now, list, n: None, content }
}

#[test]
fn a_stop_before_an_earlier_message_has_one_receipt_after_a_restart() {
    let mut room = room();
    room.begin();
    let (signer, stop) = (room.signer(room.owner, Role::Primary), Content::Control(Control::Stop));
    room.key_is_missing = true;
    assert_eq!(room.resend(signer.clone(), "c-1", stop.clone()).unwrap().outcome, ReceiptOutcome::Done);
    // The mark is still before it, so the next process reads it again.
    let mut again = room_by(room.owner, room.core.kept.clone());
    again.core.opened_at(70);
    again.give(70, stored(&room, "c-1", stop.clone()), signer.clone());
    assert_eq!(receipts(&again), 0);
    // What came later is an answer to a server that shows it twice.
    again.give(71, stored(&room, "c-1", stop), signer);
    assert_eq!(receipts(&again), 1);
}

#[test]
fn a_missing_key_is_said_once_in_each_session() {
    let mut room = confirmed();
    for _ in 0..3 {
        room.core.lacks_key();
    }
    room.settle();
    assert_eq!(errors(&room), 1);
    let mut again = room_by(room.owner, room.core.kept.clone());
    again.core.lacks_key();
    again.settle();
    assert_eq!(errors(&again), 0, "the next process knows that it was said");
}
