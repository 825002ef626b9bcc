//! Checks the formats of device lists, content rings, links and recovery words: fixed vectors, and both directions against
//! WebCrypto.

use std::path::Path;

use crate::lists::{LinkText, List, signed_text};
use ensemble_types::devices::{
    DeviceKind, DeviceLinkAnswer, DeviceLinkRequest, DeviceList, ListedDevice, Role, SignedList,
};
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::encoding::{decode_array, encode};
use super::tests::{RUNNERS, through_webcrypto};
use super::*;
use crate::AccountKey;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    first_seed: String,
    second_seed: String,
    second_box_key: String,
    /// Version 1 with the first device, and version 2 with the second one and the recovery words.
    lists: Vec<SignedList>,
    digests: Vec<String>,
    content_secret: String,
    content_public_key: String,
    ring: String,
    sealed_ring: SealedRing,
    link: LinkVector,
    /// The request of a machine on the first device's computer, over the same link.
    machine_link: AskedVector,
    recovery: RecoveryVector,
}

#[derive(Serialize, Deserialize)]
struct SealedRing {
    aad: String,
    blob: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LinkVector {
    address: String,
    origin: String,
    request: DeviceLinkRequest,
    text: String,
    digits: String,
    answer: DeviceLinkAnswer,
    answer_aad: String,
    sealed_answer: String,
}

#[derive(Serialize, Deserialize)]
struct AskedVector {
    request: DeviceLinkRequest,
    text: String,
    digits: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecoveryVector {
    bits: String,
    words: String,
    public_key: String,
    box_key: String,
}

fn key(seed: &str) -> AccountKey {
    AccountKey::from_seed(&decode_array(seed).unwrap())
}

fn listed(key: &AccountKey, role: Role) -> ListedDevice {
    let box_key = BoxKeyPair::of_device(key).unwrap().public().to_text();
    ListedDevice { key: key.public_key(), box_key, role, machine_id: None, name: None, by: None }
}

fn signed(list: &DeviceList, by: &AccountKey) -> SignedList {
    let body = serde_json::to_string(list).unwrap();
    let signature = by.sign(&signed_text(&body));
    SignedList {
        body: Text::new(body).unwrap(),
        signer: Blob::new(by.public_key()).unwrap(),
        signature: Blob::new(signature).unwrap(),
    }
}

fn generate() -> Vectors {
    let (first_seed, second_seed) = (encode(&[3; 32]), encode(&[4; 32]));
    let (first, second) = (key(&first_seed), key(&second_seed));
    let words = RecoveryWords::from_bits([5; 32]);
    let recovery = words.key().unwrap();
    let ring = ContentRing::generate();
    let content = ring.public().unwrap().to_text();
    let begun = DeviceList {
        account: first.public_key(),
        version: 1,
        prev: None,
        created: Timestamp::from_unix_seconds(1_800_000_000),
        content_epoch: 1,
        content_public_key: content.clone(),
        devices: vec![listed(&first, Role::Primary)],
    };
    let one = List::first(&signed(&begun, &first), &first.public_key()).unwrap();
    let recovery_entry = ListedDevice {
        key: recovery.public_key(),
        box_key: words.box_key().unwrap().public().to_text(),
        role: Role::Recovery,
        machine_id: None,
        name: None,
        by: None,
    };
    let grown = DeviceList {
        version: 2,
        prev: Some(one.digest_text()),
        devices: vec![listed(&first, Role::Primary), listed(&second, Role::Linked), recovery_entry],
        ..begun
    };
    let two = one.next(&signed(&grown, &first)).unwrap();
    let entry = two.device(&second.public_key()).unwrap();
    let code = LinkCode::new("https://ensemble.example", &encode(&[6; 16]));
    let asked = |name: &str, kind: DeviceKind, by: Option<String>| {
        let mut request = DeviceLinkRequest {
            public_key: Blob::new(second.public_key()).unwrap(),
            box_key: Blob::new(entry.box_key.clone()).unwrap(),
            name: Text::new(name).unwrap(),
            kind,
            by: by.map(|by| Blob::new(by).unwrap()),
            mac: Blob::new("A".repeat(43)).unwrap(),
            signature: Blob::new("A".repeat(86)).unwrap(),
        };
        let text = LinkText::of(&code.base, &code.id, &request);
        request.mac = Blob::new(text.mac(code.secret()).unwrap()).unwrap();
        request.signature = Blob::new(second.sign(text.as_bytes())).unwrap();
        let digits = text.digits(code.secret()).unwrap();
        AskedVector { request, text: String::from_utf8(text.as_bytes().to_vec()).unwrap(), digits }
    };
    let AskedVector { request, text, digits } = asked("phone 📱", DeviceKind::Web, None);
    let answer = DeviceLinkAnswer {
        user_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        account: first.public_key(),
        version: 2,
        digest: two.digest_text(),
    };
    Vectors {
        second_box_key: entry.box_key.clone(),
        digests: vec![one.digest_text(), two.digest_text()],
        content_secret: encode(ring.pair(1).unwrap().secret()),
        content_public_key: content,
        ring: encode(&ring.to_bytes()),
        sealed_ring: SealedRing {
            aad: format!("ensemble-content-ring-v1\n{}\n{}", first.public_key(), second.public_key()),
            blob: ring.seal_to(entry, &first.public_key()).unwrap(),
        },
        link: LinkVector {
            address: code.address().to_string(),
            origin: code.base.clone(),
            text,
            digits,
            request,
            answer_aad: format!("ensemble-link-answer-v1\n{}", code.id),
            sealed_answer: code.seal_answer(&answer).unwrap(),
            answer,
        },
        machine_link: asked("desk", DeviceKind::Runner, Some(first.public_key())),
        recovery: RecoveryVector {
            bits: encode(&[5; 32]),
            words: words.words().unwrap().join(" "),
            public_key: recovery.public_key(),
            box_key: words.box_key().unwrap().public().to_text(),
        },
        lists: vec![one.signed().clone(), two.signed().clone()],
        first_seed,
        second_seed,
    }
}

fn check(vectors: &Vectors) {
    let (first, second) = (key(&vectors.first_seed), key(&vectors.second_seed));
    let boxed = BoxKeyPair::of_device(&second).unwrap();
    assert_eq!(boxed.public().to_text(), vectors.second_box_key);
    let one = List::first(&vectors.lists[0], &first.public_key()).unwrap();
    let two = one.next(&vectors.lists[1]).unwrap();
    assert_eq!([one.digest_text(), two.digest_text()].as_slice(), vectors.digests);
    let ring = ContentRing::open(&vectors.sealed_ring.blob, &boxed, &second.public_key(), &two).unwrap();
    assert_eq!(encode(&ring.to_bytes()), vectors.ring);
    assert_eq!(encode(ring.pair(1).unwrap().secret()), vectors.content_secret);
    assert_eq!(ring.public().unwrap().to_text(), vectors.content_public_key);

    let link = &vectors.link;
    let code = LinkCode::from_address(&link.address).unwrap();
    assert_eq!(*code.address(), link.address);
    let AskedVector { request, text, digits } = &vectors.machine_link;
    for (request, said, digits) in [(&link.request, &link.text, &link.digits), (request, text, digits)] {
        let text = LinkText::of(&link.origin, &code.id, request);
        assert_eq!(text.as_bytes(), said.as_bytes());
        assert!(text.is_mac(code.secret(), &request.mac));
        assert!(crate::lists::is_possession([link.origin.as_str()], &code.id, request));
        assert_eq!(text.digits(code.secret()).unwrap(), *digits);
    }
    assert_eq!(code.open_answer(&link.sealed_answer), Ok(link.answer.clone()));

    let words = RecoveryWords::parse(&vectors.recovery.words).unwrap();
    assert_eq!(words, RecoveryWords::from_bits(decode_array(&vectors.recovery.bits).unwrap()));
    assert_eq!(words.key().unwrap().public_key(), vectors.recovery.public_key);
    assert_eq!(words.box_key().unwrap().public().to_text(), vectors.recovery.box_key);
}

fn recorded() -> Vectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/devices.json");
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generate()).unwrap() + "\n").unwrap();
    }
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_was_made_by_an_earlier_version_is_understood() {
    check(&recorded());
}

#[test]
fn a_browser_makes_and_understands_the_same() {
    for runner in RUNNERS {
        check(&through_webcrypto(runner, "devices.mjs", &recorded()));
        check(&through_webcrypto(runner, "devices.mjs", &generate()));
    }
}

#[test]
fn a_content_ring_opens_for_its_device_and_its_list_only() {
    let vectors = generate();
    let (first, second) = (key(&vectors.first_seed), key(&vectors.second_seed));
    let one = List::first(&vectors.lists[0], &first.public_key()).unwrap();
    let two = one.next(&vectors.lists[1]).unwrap();
    let boxed = BoxKeyPair::of_device(&second).unwrap();
    let open = |list: &List, sealed: &str, device: &AccountKey| {
        ContentRing::open(sealed, &BoxKeyPair::of_device(device).unwrap(), &device.public_key(), list)
    };
    let blob = &vectors.sealed_ring.blob;
    assert!(open(&two, blob, &second).is_ok());
    assert_eq!(open(&two, blob, &first), Err(SealError::Refused));
    assert_eq!(ContentRing::open(blob, &boxed, &first.public_key(), &two), Err(SealError::Refused));
    // A ring by another signer, and one with an epoch more than the list.
    let entry = two.device(&second.public_key()).unwrap();
    let foreign = ContentRing::generate().seal_to(entry, &first.public_key()).unwrap();
    assert_eq!(open(&two, &foreign, &second), Err(SealError::OtherContentRing));
    let ring = open(&two, blob, &second).unwrap();
    let longer = ring.next().unwrap().seal_to(entry, &first.public_key()).unwrap();
    assert_eq!(open(&two, &longer, &second), Err(SealError::OtherContentRing));
    // What was sealed to an earlier epoch still opens.
    let next = ring.next().unwrap();
    let binding = Binding::Session {
        session: "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap(),
        owner: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
    };
    let session = KeyRing::generate();
    let sealed = seal_ring(&session, &ring.public().unwrap(), binding, &first).unwrap();
    assert_eq!(next.open_with(|pair| open_ring(&sealed, pair, binding)).unwrap().ring, session);
    assert_eq!(ContentRing::generate().open_with(|pair| open_ring(&sealed, pair, binding)), Err(SealError::Refused));
}

#[test]
fn an_answer_and_a_code_belong_together() {
    let vectors = generate();
    let code = LinkCode::from_address(&vectors.link.address).unwrap();
    let other = LinkCode::new(&code.base, &code.id);
    assert_eq!(other.open_answer(&vectors.link.sealed_answer), Err(SealError::Refused));
    let elsewhere = vectors.link.address.replace(&code.id, &encode(&[7; 16]));
    let elsewhere = LinkCode::from_address(&elsewhere).unwrap();
    assert_eq!(elsewhere.open_answer(&vectors.link.sealed_answer), Err(SealError::Refused));
    for bad in ["", "https://a.example/link", "https://a.example/link#v2.a.b", "https://a.example/link#v1.a.b", "#v1"] {
        assert_eq!(LinkCode::from_address(bad), Err(SealError::Format), "{bad}");
    }
    assert!(!format!("{code:?}").contains(&encode(code.secret())), "the secret is not printed");
}

#[test]
fn a_wrong_word_is_named_before_anything_is_sent() {
    let words = generate().recovery.words;
    assert!(RecoveryWords::parse(&format!("  {}\n", words.to_uppercase().replace(' ', "\n "))).is_ok());
    assert_eq!(RecoveryWords::parse("abandon zebra"), Err(BadWords::Count(2)));
    assert_eq!(RecoveryWords::parse(&words.replacen(' ', " nonsense ", 1)), Err(BadWords::Unknown(2)));
    let mut swapped: Vec<&str> = words.split(' ').collect();
    swapped.swap(0, 23);
    assert_eq!(RecoveryWords::parse(&swapped.join(" ")), Err(BadWords::Checksum));
    assert_ne!(RecoveryWords::generate(), RecoveryWords::generate());
    assert_eq!(RecoveryWords::generate().words().unwrap().len(), 24);
    // BIP-39's own vector for 32 bytes of 0x7f.
    let known = "legal winner thank year wave sausage worth useful legal winner thank year wave sausage worth useful legal \
                 winner thank year wave sausage worth title";
    assert_eq!(RecoveryWords::from_bits([0x7f; 32]).words().unwrap().join(" "), known);
}
