//! What a signature of a ring holds for, and which grants a ring counts.

use ensemble_types::ids::{SessionId, UserId};

use super::encoding::{decode, encode};
use super::tests::account;
use super::*;
use crate::AccountKey;

/// Who could open a ring once, as a device that was removed since, cannot seal it to the key that came after: what its maker has signed
/// is the old seal.
#[test]
fn a_signature_holds_for_one_seal() {
    let [old, new] = [(), ()].map(|()| BoxKeyPair::of(&AccountKey::generate()).unwrap());
    let maker = account();
    let (ring, binding) =
        (KeyRing::generate(), Binding::Session { session: SessionId::generate(), owner: UserId::generate() });
    let sealed = decode(&seal_ring(&ring, &old.public(), binding, &maker).unwrap()).unwrap();
    let again = decode(&seal_ring(&ring, &new.public(), binding, &AccountKey::generate()).unwrap()).unwrap();
    let moved = [&sealed[..97], &again[97..]].concat();
    assert_eq!(open_ring(&encode(&moved), &new, binding), Err(SealError::RingSignature));
}

#[test]
fn a_machine_reads_of_a_ring_which_list_its_maker_knew() {
    let (session, machine) = (SessionId::generate(), "m".parse().unwrap());
    let pair = BoxKeyPair::of(&account()).unwrap();
    let (ring, maker) = (KeyRing::generate(), account());
    let binding = Binding::Host { session, machine: &machine, content_epoch: 2 };
    let sealed = seal_ring(&ring, &pair.public(), binding, &maker).unwrap();
    for newest in [2, 3, 9] {
        let (signed, epoch) = open_host_ring(&sealed, &pair, (session, &machine), newest).unwrap();
        assert_eq!((signed.ring, signed.signer, epoch), (ring.clone(), maker.public_key(), 2));
    }
    assert_eq!(open_host_ring(&sealed, &pair, (session, &machine), 1), Err(SealError::RingSignature));
}

#[test]
fn a_machine_leaves_the_floor_where_it_was() {
    let ring = KeyRing::generate();
    assert_eq!((ring.epoch(), ring.floor()), (1, 1));
    let by_machine = ring.next_by_machine().unwrap().next_by_machine().unwrap();
    assert_eq!((by_machine.epoch(), by_machine.floor()), (3, 1));
    let by_person = by_machine.next().unwrap();
    assert_eq!((by_person.epoch(), by_person.floor()), (4, 4));
    assert_eq!(KeyRing::from_bytes(&by_machine.to_bytes()), Ok(by_machine.clone()));
    for floor in [0_u32, 4, u32::MAX] {
        let mut other = by_machine.to_bytes().to_vec();
        other[5..9].copy_from_slice(&floor.to_be_bytes());
        assert_eq!(KeyRing::from_bytes(&other), Err(SealError::Format), "{floor}");
    }
}
