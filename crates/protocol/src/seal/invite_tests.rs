//! Checks the formats of invitations: a fixed vector, and both directions against WebCrypto.

use std::path::Path;

use ensemble_types::ids::UserId;
use ensemble_types::invites::ClaimInvite;
use ensemble_types::shares::ShareLevel;
use ensemble_types::text::Blob;
use serde::{Deserialize, Serialize};

use super::encoding::{decode_array, encode};
use super::tests::{RUNNERS, through_webcrypto};
use super::*;
use crate::AccountKey;
use crate::lists::{ClaimText, is_claim};
use crate::transcript::words::May;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    address: String,
    origin: String,
    admission: String,
    admission_digest: String,
    /// Of the guest's device.
    guest_seed: String,
    user: UserId,
    account: String,
    claim: ClaimInvite,
    text: String,
    answer: InviteAnswer,
    answer_aad: String,
    sealed_answer: String,
}

fn key(seed: &str) -> AccountKey {
    AccountKey::from_seed(&decode_array(seed).unwrap())
}

fn generate() -> Vector {
    let (origin, guest_seed) = ("https://ensemble.example".to_owned(), encode(&[2; 32]));
    let code = InviteCode::with_secret(&origin, &encode(&[6; 16]), [9; 32].into());
    let user: UserId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let (account, digest) = (key(&encode(&[3; 32])).public_key(), encode(&[4; 32]));
    let text = ClaimText::new(&origin, &code.id, (user, &account), (2, &digest), "Bob 🎈");
    let claim = ClaimInvite {
        name: Blob::new("Bob 🎈").unwrap(),
        version: 2,
        digest: Blob::new(digest.clone()).unwrap(),
        mac: Blob::new(text.mac(code.secret()).unwrap()).unwrap(),
        signature: Blob::new(key(&guest_seed).sign(text.as_bytes())).unwrap(),
    };
    let answer = InviteAnswer {
        session: "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap(),
        machine: Some(key(&encode(&[5; 32])).public_key()),
        owner: "01890a5d-ac96-774b-bcce-b302099a8059".parse().unwrap(),
        account: key(&encode(&[1; 32])).public_key(),
        version: 7,
        digest,
        level: ShareLevel::View,
        may: Some(May::Prompt),
        name: "Anna".to_owned(),
    };
    Vector {
        address: code.address().to_string(),
        admission: code.admission().unwrap().to_string(),
        admission_digest: InviteCode::admission_digest(code.secret()).unwrap(),
        text: String::from_utf8(text.as_bytes().to_vec()).unwrap(),
        answer_aad: format!("ensemble-invite-answer-v1\n{}", code.id),
        sealed_answer: code.seal_answer(&answer).unwrap(),
        origin,
        guest_seed,
        user,
        account,
        claim,
        answer,
    }
}

fn is_good(vector: &Vector, origin: &str, invite: &str, claim: &ClaimInvite) -> bool {
    is_claim([origin], invite, (vector.user, &vector.account), &key(&vector.guest_seed).public_key(), claim)
}

fn check(vector: &Vector) {
    let code = InviteCode::from_address(&vector.address).unwrap();
    assert_eq!(*code.address(), vector.address);
    assert_eq!(*code.admission().unwrap(), vector.admission);
    assert_eq!(InviteCode::admission_digest(code.secret()).unwrap(), vector.admission_digest);
    let text = ClaimText::of(&vector.origin, &code.id, (vector.user, &vector.account), &vector.claim);
    assert_eq!(text.as_bytes(), vector.text.as_bytes());
    assert!(text.is_mac(code.secret(), &vector.claim.mac));
    assert!(is_good(vector, &vector.origin, &code.id, &vector.claim));
    assert_eq!(code.open_answer(&vector.sealed_answer), Ok(vector.answer.clone()));
}

fn recorded() -> Vector {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/invites.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generate()).unwrap() + "\n").unwrap();
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_invitation_of_an_earlier_version_is_understood() {
    check(&recorded());
}

#[test]
fn a_browser_claims_and_answers_the_same() {
    for runner in RUNNERS {
        check(&through_webcrypto(runner, "invites.mjs", &recorded()));
        check(&through_webcrypto(runner, "invites.mjs", &generate()));
    }
}

#[test]
fn a_claim_counts_for_its_origin_invitation_guest_and_secret_only() {
    let vector = generate();
    let (code, claim) = (InviteCode::from_address(&vector.address).unwrap(), &vector.claim);
    assert!(is_good(&vector, &vector.origin, &code.id, claim));
    assert!(!is_good(&vector, "https://evil.example", &code.id, claim));
    assert!(!is_good(&vector, &vector.origin, &encode(&[7; 16]), claim));
    let renamed = ClaimInvite { name: Blob::new("Eve").unwrap(), ..claim.clone() };
    assert!(!is_good(&vector, &vector.origin, &code.id, &renamed));
    let other_user = Vector { user: vector.answer.owner, ..generate() };
    assert!(!is_good(&other_user, &vector.origin, &code.id, claim));
    let other_key = Vector { guest_seed: encode(&[8; 32]), ..generate() };
    assert!(!is_good(&other_key, &vector.origin, &code.id, claim));
    let text = ClaimText::of(&vector.origin, &code.id, (vector.user, &vector.account), claim);
    assert!(!text.is_mac(&[8; 32], &claim.mac));
}

#[test]
fn an_answer_opens_with_its_own_invitation_only() {
    let vector = generate();
    let code = InviteCode::from_address(&vector.address).unwrap();
    let other_id = InviteCode::with_secret(&code.base, &encode(&[7; 16]), (*code.secret()).into());
    let other_secret = InviteCode::new(&code.base, &code.id);
    for other in [&other_id, &other_secret] {
        assert_eq!(other.open_answer(&vector.sealed_answer), Err(SealError::Refused));
    }
    let link = vector.address.replace("/join#", "/link#");
    assert_eq!(InviteCode::from_address(&link), Err(SealError::Format));
    assert_eq!(LinkCode::from_address(&vector.address), Err(SealError::Format));
}
