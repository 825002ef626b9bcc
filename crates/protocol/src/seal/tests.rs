//! Checks the formats of docs/ENCRYPTION.md: fixed vectors, and both directions against WebCrypto.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use ensemble_types::accounts::PublicUser;
use ensemble_types::ids::{MachineId, SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use serde::{Deserialize, Serialize};

use super::encoding::{decode, decode_array, encode};
use super::said_vectors::SaidVectors;
use super::*;
use crate::AccountKey;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Vectors {
    account_seed: String,
    pub(super) public_key: String,
    fingerprint: String,
    content_public_key: String,
    content_public_key_signature: String,
    sign_in: SignInVector,
    pub(super) user_id: UserId,
    pub(super) session_id: SessionId,
    machine_id: MachineId,
    ring: String,
    sealed_rings: Vec<Sealed>,
    shares: Vec<ShareVector>,
    link: LinkVector,
    contents: Vec<ContentVector>,
    #[serde(flatten)]
    said: Option<SaidVectors>,
}

#[derive(Serialize, Deserialize)]
struct SignInVector {
    origin: String,
    challenge: String,
    signature: String,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    aad: String,
    blob: String,
}

/// A share of the ring, by the account itself to itself, or through an admin.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShareVector {
    level: ShareLevel,
    epoch: u32,
    content_epoch: u32,
    recipient_epoch: u32,
    machine: Option<MachineId>,
    signer: String,
    admin: Option<UserId>,
    blob: String,
}

#[derive(Serialize, Deserialize)]
struct LinkVector {
    fragment: String,
    aad: String,
    blob: String,
}

#[derive(Serialize, Deserialize)]
struct ContentVector {
    aad: String,
    epoch: u32,
    plaintext: String,
    blob: String,
}

const TEXTS: [&str; 3] = [r#"{"text":"hello"}"#, "", "{\"text\":\"naïve 🙂\\n\\u0000\"}"];

pub(super) fn account() -> AccountKey {
    let mut seed = [0; 32];
    for (at, byte) in seed.iter_mut().enumerate() {
        *byte = u8::try_from(at).unwrap() * 7;
    }
    AccountKey::from_seed(&seed)
}

fn bindings(vectors: &Vectors) -> [Binding<'_>; 4] {
    [
        Binding::Session { session: vectors.session_id, owner: vectors.user_id },
        Binding::Hosted { session: vectors.session_id, owner: vectors.user_id, machine: &vectors.machine_id },
        Binding::Host { session: vectors.session_id, machine: &vectors.machine_id, content_epoch: 3 },
        Binding::Machine { machine: &vectors.machine_id },
    ]
}

fn purposes(vectors: &Vectors) -> [Purpose<'_>; 4] {
    [
        Purpose::SessionMetadata(vectors.session_id),
        Purpose::AgentState(vectors.session_id),
        Purpose::Message(vectors.session_id),
        Purpose::MachineMetadata(&vectors.machine_id),
    ]
}

pub(super) fn generate() -> Vectors {
    let account = account();
    let pair = BoxKeyPair::of(&account).unwrap();
    let first = KeyRing::generate();
    let ring = first.next().unwrap();
    let secret = LinkSecret::generate();
    let (origin, challenge) = ("http://127.0.0.1:8080".to_owned(), encode(&[9; 32]));
    let mut vectors = Vectors {
        account_seed: encode(account.seed().as_ref()),
        public_key: account.public_key(),
        fingerprint: fingerprint(&account.public_key()).unwrap(),
        content_public_key: pair.public().to_text(),
        content_public_key_signature: pair.public().signed_by(&account),
        sign_in: SignInVector { signature: account.sign_challenge(&origin, &challenge), origin, challenge },
        user_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        session_id: "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap(),
        machine_id: "laptop_1".parse().unwrap(),
        ring: encode(&ring.to_bytes()),
        sealed_rings: Vec::new(),
        shares: Vec::new(),
        link: LinkVector { fragment: secret.fragment(), aad: String::new(), blob: String::new() },
        contents: Vec::new(),
        said: None,
    };
    vectors.link.aad = format!("ensemble-link-key-v1\n{}", vectors.session_id);
    vectors.link.blob = secret.seal(&ring, vectors.session_id).unwrap();
    vectors.sealed_rings = bindings(&vectors)
        .map(|binding| Sealed {
            aad: binding.associated_data(),
            blob: seal_ring(&ring, &pair.public(), binding, &account).unwrap(),
        })
        .into();
    let own = |level, machine: Option<&MachineId>, admin| {
        let grant = grant(&vectors, level);
        let share = SharedRing::seal(&ring, &pair.public(), (grant, machine), &account, admin).unwrap();
        (share, machine.cloned())
    };
    let admin = own(ShareLevel::Admin, None, None);
    let through = admin.0.as_admin(vectors.user_id, &vectors.public_key).unwrap();
    let said = SaidVectors::generate((vectors.session_id, vectors.user_id), &ring, (&account, &through));
    let hosted = own(ShareLevel::View, Some(&vectors.machine_id), None);
    vectors.shares = [hosted, own(ShareLevel::Edit, None, Some(through)), admin]
        .map(|(share, machine)| ShareVector {
            level: share.level(),
            epoch: share.epoch(),
            content_epoch: share.content_epoch(),
            recipient_epoch: share.recipient_epoch(),
            machine,
            signer: account.public_key(),
            admin: share.admin().map(|admin| admin.user),
            blob: share.to_text(),
        })
        .into();
    let contents = [&first, &ring].into_iter().flat_map(|ring| purposes(&vectors).map(|purpose| (ring, purpose)));
    let contents = contents.zip(TEXTS.iter().cycle()).map(|((ring, purpose), text)| ContentVector {
        aad: purpose.associated_data(ring.epoch()),
        epoch: ring.epoch(),
        plaintext: (*text).to_owned(),
        blob: seal(ring, purpose, text.as_bytes()).unwrap(),
    });
    vectors.contents = contents.collect();
    vectors.said = Some(said);
    vectors
}

fn check(vectors: &Vectors) {
    let account = AccountKey::from_seed(&decode_array(&vectors.account_seed).unwrap());
    assert_eq!(account.public_key(), vectors.public_key);
    assert_eq!(account.sign_challenge(&vectors.sign_in.origin, &vectors.sign_in.challenge), vectors.sign_in.signature);
    assert_eq!(fingerprint(&vectors.public_key).unwrap(), vectors.fingerprint);
    let pair = BoxKeyPair::of(&account).unwrap();
    assert_eq!(pair.public().to_text(), vectors.content_public_key);
    assert_eq!(BoxPublicKey::of_user(&user(vectors)), Ok(pair.public()));

    let ring = KeyRing::from_bytes(&decode(&vectors.ring).unwrap()).unwrap();
    for (binding, sealed) in bindings(vectors).into_iter().zip(&vectors.sealed_rings) {
        assert_eq!(binding.associated_data(), sealed.aad);
        let opened = open_ring(&sealed.blob, &pair, binding).unwrap();
        assert_eq!((opened.ring, opened.signer), (ring.clone(), vectors.public_key.clone()));
    }
    for vector in &vectors.shares {
        let share = SharedRing::from_text(&vector.blob).unwrap();
        assert_eq!((share.level(), share.epoch()), (vector.level, vector.epoch));
        assert_eq!((share.content_epoch(), share.recipient_epoch()), (vector.content_epoch, vector.recipient_epoch));
        assert_eq!(share.to_text(), vector.blob);
        let signer = share.signer(vectors.session_id, vectors.user_id, &vectors.public_key);
        assert_eq!(signer.as_ref(), Some(&vector.signer));
        assert_eq!(share.admin().map(|admin| admin.user), vector.admin);
        if let Some(admin) = share.admin() {
            assert_eq!(admin.granted_by(vectors.session_id).as_ref(), Some(&vector.signer));
        }
        let for_them = (vectors.session_id, vectors.user_id);
        assert_eq!(share.open(&pair, for_them, vector.machine.as_ref()).unwrap().ring, ring);
        let elsewhere = "another".parse().unwrap();
        assert_eq!(share.open(&pair, for_them, Some(&elsewhere)), Err(SealError::Refused));
    }
    let secret = LinkSecret::from_fragment(&vectors.link.fragment).unwrap();
    assert_eq!(secret.open(&vectors.link.blob, vectors.session_id), Ok(ring.clone()));
    for (purpose, content) in purposes(vectors).into_iter().cycle().zip(&vectors.contents) {
        assert_eq!(purpose.associated_data(content.epoch), content.aad);
        assert_eq!(open(&ring, purpose, &content.blob), Ok(content.plaintext.clone().into_bytes()));
    }
    let said = vectors.said.as_ref().unwrap();
    said.check((vectors.session_id, vectors.user_id), &ring, &vectors.public_key);
}

pub(super) fn grant(vectors: &Vectors, level: ShareLevel) -> Grant<'_> {
    Grant {
        session: vectors.session_id,
        recipient: vectors.user_id,
        account: &vectors.public_key,
        level,
        content_epoch: 3,
        recipient_epoch: 5,
    }
}

fn user(vectors: &Vectors) -> PublicUser {
    PublicUser {
        id: vectors.user_id,
        public_key: vectors.public_key.clone(),
        content_public_key: Some(vectors.content_public_key.clone()),
        content_public_key_signature: Some(vectors.content_public_key_signature.clone()),
        display_name: None,
    }
}

/// Where the checks run.
pub(super) const RUNNERS: [&str; 2] = ["node.mjs", "browser.mjs"];

/// What the checks make of these vectors, after they have checked them: in Node, or in Chromium.
pub(super) fn through_webcrypto<V: Serialize + serde::de::DeserializeOwned>(
    runner: &str,
    file: &str,
    vectors: &V,
) -> V {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/webcrypto").join(runner);
    let mut node = Command::new("node")
        .arg(runner)
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node (18 or newer) must be installed");
    node.stdin.take().unwrap().write_all(&serde_json::to_vec(vectors).unwrap()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "WebCrypto does not agree; see its output above");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn recorded() -> Vectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/seal.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generate()).unwrap() + "\n").unwrap();
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_was_sealed_by_an_earlier_version_opens() {
    check(&recorded());
}

#[test]
fn what_we_seal_opens_in_a_browser_and_the_other_way_round() {
    for runner in RUNNERS {
        check(&through_webcrypto(runner, "sealed.mjs", &recorded()));
        check(&through_webcrypto(runner, "sealed.mjs", &generate()));
    }
}

#[test]
fn nothing_opens_for_another_purpose_epoch_or_user() {
    let vectors = generate();
    let pair = BoxKeyPair::of(&account()).unwrap();
    let ring = KeyRing::generate();
    let stranger = BoxKeyPair::of(&AccountKey::generate()).unwrap();
    for binding in bindings(&vectors) {
        let sealed = seal_ring(&ring, &pair.public(), binding, &account()).unwrap();
        assert_eq!(open_ring(&sealed, &stranger, binding), Err(SealError::Refused));
        let opened = bindings(&vectors).into_iter().filter(|other| open_ring(&sealed, &pair, *other).is_ok());
        assert_eq!(opened.count(), 1);
    }
    for purpose in purposes(&vectors) {
        let sealed = seal(&ring, purpose, b"secret").unwrap();
        let opened = purposes(&vectors).into_iter().filter(|other| open(&ring, *other, &sealed).is_ok());
        assert_eq!(opened.count(), 1);
        assert_eq!(open(&KeyRing::generate(), purpose, &sealed), Err(SealError::Refused));
        let later = seal(&ring.next().unwrap(), purpose, b"secret").unwrap();
        assert_eq!(open(&ring, purpose, &later), Err(SealError::UnknownEpoch(2)));
    }
}

#[test]
fn one_changed_bit_anywhere_is_detected() {
    let (ring, purpose) = (KeyRing::generate(), Purpose::SessionMetadata(SessionId::generate()));
    let sealed = decode(&seal(&ring, purpose, b"secret").unwrap()).unwrap();
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(open(&ring, purpose, &encode(&changed)).is_err(), "byte {at}");
        assert!(open(&ring, purpose, &encode(&sealed[..at])).is_err(), "cut at {at}");
    }
}

#[test]
fn a_swapped_content_key_is_refused() {
    let mut user = user(&generate());
    let other = AccountKey::generate();
    let foreign = BoxKeyPair::of(&other).unwrap().public();
    user.content_public_key = Some(foreign.to_text());
    assert_eq!(BoxPublicKey::of_user(&user), Err(SealError::Signature));
    user.content_public_key_signature = Some(foreign.signed_by(&other));
    assert_eq!(BoxPublicKey::of_user(&user), Err(SealError::Signature));
    user.content_public_key = None;
    assert_eq!(BoxPublicKey::of_user(&user), Err(SealError::NoContentKey));
}

#[test]
fn a_ring_says_who_sealed_it() {
    let (pair, stranger) = (BoxKeyPair::of(&account()).unwrap(), AccountKey::generate());
    let (ring, binding) =
        (KeyRing::generate(), Binding::Session { session: SessionId::generate(), owner: UserId::generate() });
    let sealed = seal_ring(&ring, &pair.public(), binding, &stranger).unwrap();
    assert_eq!(open_ring(&sealed, &pair, binding).unwrap().signer, stranger.public_key());
    // What is not signed, and what was changed.
    let aad = binding.associated_data();
    let unsigned = super::wrap::seal_bytes(&ring.to_bytes(), &pair.public(), &aad).unwrap();
    assert_eq!(open_ring(&unsigned, &pair, binding), Err(SealError::Format));
    let bytes = decode(&sealed).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(open_ring(&encode(&changed), &pair, binding).is_err(), "byte {at}");
    }
    for length in 0..bytes.len() {
        assert!(open_ring(&encode(&bytes[..length]), &pair, binding).is_err(), "{length} bytes");
    }
    let elsewhere = Binding::Session { session: SessionId::generate(), owner: UserId::generate() };
    assert_eq!(open_ring(&sealed, &pair, elsewhere), Err(SealError::RingSignature));
}

#[test]
fn a_ring_begins_with_the_first_epoch() {
    let bytes = KeyRing::generate().to_bytes();
    for first in [0_u32, 2, u32::MAX] {
        let mut other = bytes.to_vec();
        other[1..5].copy_from_slice(&first.to_be_bytes());
        assert_eq!(KeyRing::from_bytes(&other), Err(SealError::Format), "{first}");
    }
}

#[test]
fn a_full_ring_fits_into_the_field_for_a_sealed_key() {
    let vectors = generate();
    let pair = BoxKeyPair::of(&account()).unwrap();
    let mut ring = KeyRing::generate();
    while let Ok(next) = ring.next() {
        ring = next;
    }
    let binding = Binding::Session { session: SessionId::generate(), owner: UserId::generate() };
    let sealed = seal_ring(&ring, &pair.public(), binding, &account()).unwrap();
    assert!(sealed.len() <= 8_192, "{}", sealed.len());
    assert_eq!(open_ring(&sealed, &pair, binding).unwrap().ring, ring);
    let longest: MachineId = "m".repeat(64).parse().unwrap();
    let of = |level| (grant(&vectors, level), Some(&longest));
    let own = SharedRing::seal(&ring, &pair.public(), of(ShareLevel::Admin), &account(), None).unwrap();
    let admin = own.as_admin(vectors.user_id, &vectors.public_key).unwrap();
    let shared = SharedRing::seal(&ring, &pair.public(), of(ShareLevel::Edit), &account(), Some(admin));
    assert!(shared.unwrap().to_text().len() <= 8_192);
    assert_eq!(ring.next(), Err(SealError::TooManyKeys));
}
