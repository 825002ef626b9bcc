//! What shares and the state of clients are bound to.

use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;

use super::encoding::{decode, encode};
use super::tests::{account, generate, grant};
use super::*;
use crate::AccountKey;

#[test]
fn a_share_is_for_one_session_person_level_and_epoch() {
    let vectors = generate();
    let account = account();
    let pair = BoxKeyPair::of(&account).unwrap();
    let ring = KeyRing::generate();
    let share =
        SharedRing::seal(&ring, &pair.public(), (grant(&vectors, ShareLevel::View), None), &account, None).unwrap();
    let signer = |share: &SharedRing| share.signer(vectors.session_id, vectors.user_id, &vectors.public_key);
    assert_eq!(signer(&share), Some(vectors.public_key.clone()));
    let other = AccountKey::generate().public_key();
    assert_eq!(share.signer(SessionId::generate(), vectors.user_id, &vectors.public_key), None);
    assert_eq!(share.signer(vectors.session_id, UserId::generate(), &vectors.public_key), None);
    assert_eq!(share.signer(vectors.session_id, vectors.user_id, &other), None);
    // Any changed byte, the level and the epoch among them, and a shorter text.
    let bytes = decode(&share.to_text()).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let is_good = SharedRing::from_text(&encode(&changed)).is_ok_and(|share| signer(&share).is_some());
        assert!(!is_good, "byte {at}");
    }
    for length in 0..bytes.len() {
        let is_good = SharedRing::from_text(&encode(&bytes[..length])).is_ok_and(|share| signer(&share).is_some());
        assert!(!is_good, "{length} bytes");
    }
    // A good grant around a ring that another signer has sealed.
    let stranger = AccountKey::generate();
    let theirs =
        SharedRing::seal(&ring, &pair.public(), (grant(&vectors, ShareLevel::View), None), &stranger, None).unwrap();
    assert_eq!(signer(&theirs), Some(stranger.public_key()));
    // Only an admin's grant makes an admin.
    for level in [ShareLevel::View, ShareLevel::Edit, ShareLevel::Admin] {
        let share = SharedRing::seal(&ring, &pair.public(), (grant(&vectors, level), None), &account, None).unwrap();
        let admin = share.as_admin(vectors.user_id, &vectors.public_key).unwrap();
        assert_eq!(admin.granted_by(vectors.session_id).is_some(), level == ShareLevel::Admin, "{level:?}");
        assert_eq!(admin.granted_by(SessionId::generate()), None);
    }
}

#[test]
fn a_client_state_is_of_one_account_and_says_who_signed_it() {
    let account = account();
    let (pair, name) = (BoxKeyPair::of(&account).unwrap(), account.public_key());
    let sealed = seal_client_state(b"{}", &pair.public(), (&name, 3), &account).unwrap();
    let (json, signer) = open_client_state(&sealed, &pair, (&name, 3)).unwrap();
    assert_eq!((json.as_slice(), signer), (b"{}".as_slice(), name.clone()));
    let other = AccountKey::generate();
    assert_eq!(open_client_state(&sealed, &pair, (&other.public_key(), 3)).unwrap_err(), SealError::RingSignature);
    assert_eq!(open_client_state(&sealed, &pair, (&name, 4)).unwrap_err(), SealError::RingSignature, "another version");
    let ring = seal_ring(
        &KeyRing::generate(),
        &pair.public(),
        Binding::Session { session: SessionId::generate(), owner: UserId::generate() },
        &account,
    );
    assert_eq!(open_client_state(&ring.unwrap(), &pair, (&name, 3)).unwrap_err(), SealError::RingSignature);
}
