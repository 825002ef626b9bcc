//! Which key a machine writes under, and which it gives a server that has lost its own.

use std::sync::atomic::Ordering;

use super::*;
use crate::deliver::double::Double;
use crate::kept::{Change, Outgoing};

#[tokio::test]
async fn a_server_that_is_found_without_the_key_gets_it() {
    let double = Double::new().await;
    let keys = double.keys(&double.ring.next_by_machine().unwrap()).await;
    let shown: Session = serde_json::from_value(double.server.session()).unwrap();
    assert_eq!((shown.key_epoch, keys.ring().epoch()), (1, 2));
    keys.look_at(&shown).await.unwrap();
    let requests = double.server.requests.borrow().clone();
    let given: Vec<_> = requests.iter().filter(|(line, _)| line.starts_with("patch")).collect();
    assert_eq!(given.len(), 1, "{requests:?}");
    assert_eq!(given[0].1["expectedKeyEpoch"], 1);
    assert!(given[0].1["hostKey"].is_string() && given[0].1["encryptionKey"].is_string());
}

/// The requests that give the session a new key.
fn made(double: &Double) -> usize {
    let requests = double.server.requests.borrow();
    requests.iter().filter(|(_, body)| body.get("encryptionKey").is_some()).count()
}

/// What the machine says of a removal, with this count.
fn receipt(n: u64) -> [Change; 1] {
    [Change::Say(Outgoing { n, local_id: None, body: String::new() })]
}

#[tokio::test]
async fn a_machine_makes_the_key_that_a_removed_guest_does_not_have() {
    let double = Double::new().await;
    let keys = double.keys(&double.ring).await;
    assert_eq!(keys.writing_ring().await.unwrap().epoch(), 1);
    // An earlier process has taken the removal, and was killed.
    keys.note_old(Some(1), &[]);
    double.server.refuses_keys.store(true, Ordering::Relaxed);
    keys.writing_ring().await.unwrap_err();
    assert!(keys.ring_for(1).await.is_err(), "whatever the message");
    let next = double.keys(&double.ring).await;
    next.note_old(Some(1), &[]);
    double.server.refuses_keys.store(false, Ordering::Relaxed);
    let tried = made(&double);
    let ring = next.writing_ring().await.unwrap();
    assert_eq!((ring.epoch(), made(&double)), (2, tried + 1));
    next.note_old(Some(1), &[]);
    assert_eq!((next.writing_ring().await.unwrap(), made(&double)), (ring, tried + 1), "once");
}

#[tokio::test]
async fn a_machine_takes_the_key_of_the_owners_program_that_removes_a_guest() {
    let double = Double::new().await;
    let keys = Keys { grace: Duration::from_secs(600), ..double.keys(&double.ring).await };
    keys.note_old(Some(1), &receipt(7));
    assert_eq!(keys.ring_for(7).await.unwrap().epoch(), 1, "the owner's program waits for the receipt");
    let soon = keys.writing_ring().await.unwrap_err();
    assert!(matches!(soon, NoKey::Soon), "{soon}");
    assert_eq!(*keys.cannot_write().borrow(), None, "nothing is wrong");
    let next = double.ring.next().unwrap();
    double.give(&next);
    keys.refresh().await.unwrap();
    assert_eq!((keys.writing_ring().await.unwrap(), keys.ring_for(8).await.unwrap()), (next.clone(), next.clone()));
    // The next removal, and the owner's program makes no key. One that came before was made for people who may have been removed.
    let keys = Keys { grace: Duration::ZERO, ..double.keys(&next).await };
    keys.note_old(Some(2), &receipt(9));
    keys.writing_ring().await.unwrap();
    assert_eq!((made(&double), keys.ring().epoch()), (1, 3));
}
