//! The rules of lists and links, each with what breaks it.

use ed25519_dalek::{Signer, SigningKey};
use ensemble_types::devices::{DeviceKind, DeviceLinkRequest, DeviceList, ListedDevice, Role, SignedList};
use ensemble_types::ids::MachineId;
use ensemble_types::machines::SeenList;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use proptest::prelude::*;

use super::*;

fn key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

fn public(number: u8) -> String {
    encode(key(number).verifying_key().as_bytes())
}

/// Some X25519 public key. Most byte strings are one.
fn box_key(number: u8) -> String {
    encode(&[number; 32])
}

fn device(number: u8, role: Role) -> ListedDevice {
    let machine_id = (role == Role::Machine).then(|| format!("m{number}").parse().unwrap());
    ListedDevice { key: public(number), box_key: box_key(100 + number), role, machine_id, name: None, by: None }
}

fn body(devices: Vec<ListedDevice>) -> DeviceList {
    DeviceList {
        account: public(1),
        version: 1,
        prev: None,
        created: Timestamp::from_unix_seconds(0),
        content_epoch: 1,
        content_public_key: box_key(201),
        devices,
    }
}

fn sign(list: &DeviceList, signer: u8) -> SignedList {
    sign_text(&serde_json::to_string(list).unwrap(), signer)
}

fn sign_text(text: &str, signer: u8) -> SignedList {
    let signature = key(signer).sign(&signed_text(text)).to_bytes();
    SignedList {
        body: Text::new(text).unwrap(),
        signer: Blob::new(public(signer)).unwrap(),
        signature: Blob::new(encode(&signature)).unwrap(),
    }
}

/// Version 1 with a second primary (2), a linked one (3), a machine (4) and the recovery words (5).
fn begun() -> List {
    let roles = [Role::Primary, Role::Primary, Role::Linked, Role::Machine, Role::Recovery];
    let devices = (1..).zip(roles).map(|(number, role)| device(number, role)).collect();
    List::first(&sign(&body(devices), 1), &public(1)).unwrap()
}

/// The list after this one, unchanged.
fn after(list: &List) -> DeviceList {
    DeviceList { version: list.version() + 1, prev: Some(list.digest_text()), ..list.body().clone() }
}

fn without(list: &List, number: u8) -> DeviceList {
    let mut next = after(list);
    next.devices.retain(|device| device.key != public(number));
    next
}

fn with_new_epoch(list: DeviceList) -> DeviceList {
    DeviceList { content_epoch: list.content_epoch + 1, content_public_key: box_key(202), ..list }
}

#[test]
fn the_first_list_is_signed_by_the_account_itself() {
    let good = body(vec![device(1, Role::Primary)]);
    assert_eq!(List::first(&sign(&good, 1), &public(1)).unwrap().version(), 1);
    let first = |list: &DeviceList, signer| List::first(&sign(list, signer), &public(1)).unwrap_err();
    assert_eq!(List::first(&sign(&good, 1), &public(2)), Err(ListError::OtherAccount));
    assert_eq!(first(&good, 2), ListError::NotFirst);
    let linked = body(vec![device(1, Role::Linked), device(2, Role::Primary)]);
    assert_eq!(first(&linked, 1), ListError::NotFirst);
    assert_eq!(first(&body(vec![device(2, Role::Primary)]), 1), ListError::NotFirst);
    let late = DeviceList { version: 2, ..good.clone() };
    assert_eq!(first(&late, 1), ListError::Version { expected: 1, found: 2 });
    let epoch = DeviceList { content_epoch: 2, ..good.clone() };
    assert!(matches!(first(&epoch, 1), ListError::Epoch { expected: 1, found: 2, .. }));
    let prev = DeviceList { prev: Some(box_key(1)), ..good };
    assert_eq!(first(&prev, 1), ListError::NotFirst);
}

#[test]
fn primaries_and_the_recovery_words_sign_the_next_list() {
    let list = begun();
    let next = after(&list);
    for (signer, expected) in [
        (1, Ok(2)),
        (2, Ok(2)),
        (3, Err(ListError::Signer)),
        (4, Err(ListError::Signer)),
        (5, Ok(2)),
        (9, Err(ListError::Signer)),
    ] {
        assert_eq!(list.next(&sign(&next, signer)).map(|list| list.version()), expected, "{signer}");
    }
    // Who is added by a list cannot sign that list.
    let mut adds = after(&list);
    adds.devices.push(device(9, Role::Primary));
    assert_eq!(list.next(&sign(&adds, 9)), Err(ListError::Signer));
    // Who was removed cannot sign any more.
    let removed = list.next(&sign(&with_new_epoch(without(&list, 2)), 1)).unwrap();
    assert_eq!(removed.next(&sign(&after(&removed), 2)), Err(ListError::Signer));
    // The first device can be removed, and its account stays.
    let first_gone = list.next(&sign(&with_new_epoch(without(&list, 1)), 2)).unwrap();
    assert_eq!(first_gone.next(&sign(&after(&first_gone), 1)), Err(ListError::Signer));
    assert_eq!(first_gone.next(&sign(&after(&first_gone), 2)).unwrap().body().account, public(1));
}

#[test]
fn a_list_follows_the_one_before_it() {
    let list = begun();
    let next = |change: fn(&mut DeviceList)| {
        let mut next = after(&list);
        change(&mut next);
        list.next(&sign(&next, 1)).unwrap_err()
    };
    assert_eq!(next(|next| next.version = 1), ListError::Version { expected: 2, found: 1 });
    assert_eq!(next(|next| next.version = 3), ListError::Version { expected: 2, found: 3 });
    assert_eq!(next(|next| next.prev = None), ListError::Forked);
    assert_eq!(next(|next| next.prev = Some(box_key(1))), ListError::Forked);
    assert_eq!(next(|next| next.account = public(2)), ListError::OtherAccount);
    // Two lists after the same one: who has one of them refuses what follows the other.
    let (one, other) = (with_new_epoch(without(&list, 2)), with_new_epoch(without(&list, 1)));
    let one = list.next(&sign(&one, 1)).unwrap();
    let other = list.next(&sign(&other, 2)).unwrap();
    assert_eq!(one.next(&sign(&after(&other), 2)), Err(ListError::Forked));
}

#[test]
fn an_epoch_begins_when_a_device_that_could_open_contents_is_gone() {
    let list = begun();
    let epoch = |next: &DeviceList| match list.next(&sign(next, 1)) {
        Ok(list) => Ok(list.body().content_epoch),
        Err(ListError::Epoch { expected, found, .. }) => Err((expected, found)),
        Err(other) => panic!("{other}"),
    };
    for gone in [2, 3, 5] {
        assert_eq!(epoch(&without(&list, gone)), Err((2, 1)), "{gone}");
        assert_eq!(epoch(&with_new_epoch(without(&list, gone))), Ok(2), "{gone}");
    }
    // A machine opens nothing.
    assert_eq!(epoch(&without(&list, 4)), Ok(1));
    // A list may begin a new epoch without need, with another key, and only the next one.
    assert_eq!(epoch(&with_new_epoch(after(&list))), Ok(2));
    assert_eq!(epoch(&DeviceList { content_epoch: 2, ..after(&list) }), Err((1, 2)));
    assert_eq!(epoch(&DeviceList { content_public_key: box_key(202), ..after(&list) }), Err((2, 1)));
    assert_eq!(epoch(&DeviceList { content_epoch: 3, content_public_key: box_key(202), ..after(&list) }), Err((1, 3)));
    assert_eq!(epoch(&DeviceList { content_epoch: 0, ..after(&list) }), Err((1, 0)));
    // A device that becomes a machine, or has another box, has lost the old contents.
    let mut machine = after(&list);
    machine.devices[2] = ListedDevice { key: public(3), ..device(7, Role::Machine) };
    assert_eq!(epoch(&machine), Err((2, 1)));
    let mut other_box = after(&list);
    other_box.devices[2].box_key = box_key(99);
    assert_eq!(epoch(&other_box), Err((2, 1)));
    // A new role of the same rank needs none.
    let mut promoted = after(&list);
    promoted.devices[2].role = Role::Primary;
    assert_eq!(epoch(&promoted), Ok(1));
}

#[test]
fn a_list_has_a_form_and_bounds() {
    let first = |devices: Vec<ListedDevice>| List::first(&sign(&body(devices), 1), &public(1)).unwrap_err().to_string();
    let one = || device(1, Role::Primary);
    let bad = |change: fn(&mut ListedDevice)| {
        let mut other = device(2, Role::Linked);
        change(&mut other);
        first(vec![one(), other])
    };
    assert!(bad(|other| other.key = public(1)).contains("twice"));
    assert!(bad(|other| other.box_key = box_key(101)).contains("twice"));
    assert!(bad(|other| other.key = "AAAA".to_owned()).contains("a key is no Ed25519"));
    assert!(bad(|other| other.machine_id = Some("m".parse().unwrap())).contains("machineId"));
    assert!(bad(|other| other.role = Role::Machine).contains("machineId"));
    // Every key of small order.
    let mut weak = [0; 32];
    weak[0] = 1;
    let weak = encode(&weak);
    assert!(first(vec![one(), ListedDevice { key: weak.clone(), ..device(2, Role::Linked) }]).contains("small order"));
    assert!(first(vec![one(), ListedDevice { box_key: weak, ..device(2, Role::Linked) }]).contains("small order"));
    assert!(first(vec![one(), device(2, Role::Recovery), device(3, Role::Recovery)]).contains("more than one"));
    assert!(first(vec![]).contains("1 to 64"));
    let many = (0..64).map(|number| ListedDevice { key: public(number + 2), ..device(number + 2, Role::Linked) });
    let many: Vec<_> = [one()].into_iter().chain(many).collect();
    assert!(first(many.clone()).contains("1 to 64"));
    let none_signs = DeviceList { devices: vec![device(3, Role::Linked)], ..with_new_epoch(after(&begun())) };
    assert_eq!(begun().next(&sign(&none_signs, 1)), Err(ListError::NoSigner));
    let last = DeviceList { version: 10_001, ..after(&begun()) };
    assert!(matches!(begun().next(&sign(&last, 1)), Err(ListError::Malformed(_))));

    let good = serde_json::to_string(&body(vec![one()])).unwrap();
    for (from, to) in
        [("\"primary\"", "\"owner\""), ("\"version\":1", "\"version\":1,\"version\":1"), ("{", "["), ("}", "")]
    {
        let bad = good.replacen(from, to, 1);
        assert!(matches!(List::first(&sign_text(&bad, 1), &public(1)), Err(ListError::Malformed(_))), "{bad}");
    }
    // A later version of the program may add members.
    let newer = good.replacen('{', "{\"later\":1,", 1);
    assert!(List::first(&sign_text(&newer, 1), &public(1)).is_ok());
    // The signature is over these bytes, not over what they mean.
    let mut respelled = sign_text(&good, 1);
    respelled.body = Text::new(good.replacen('{', "{ ", 1)).unwrap();
    assert_eq!(List::first(&respelled, &public(1)), Err(ListError::Signature));
}

fn request(number: u8, origin: &str, link: &str) -> DeviceLinkRequest {
    let zero = Blob::new("A".repeat(86)).unwrap();
    let mut request = DeviceLinkRequest {
        public_key: Blob::new(public(number)).unwrap(),
        box_key: Blob::new(box_key(number)).unwrap(),
        name: Text::new("phone 📱").unwrap(),
        kind: DeviceKind::Web,
        by: None,
        mac: Blob::new("A".repeat(43)).unwrap(),
        signature: zero,
    };
    let text = LinkText::of(origin, link, &request);
    request.signature = Blob::new(encode(&key(number).sign(text.as_bytes()).to_bytes())).unwrap();
    request.mac = Blob::new(text.mac(&[7; 32]).unwrap()).unwrap();
    request
}

#[test]
fn a_request_proves_that_the_key_is_held_and_the_code_was_seen() {
    let (origin, link) = ("https://a.example", "AAAAAAAAAAAAAAAAAAAAAA");
    let good = request(1, origin, link);
    let ours = ["http://127.0.0.1:8080", origin];
    assert!(is_possession(ours, link, &good));
    assert!(!is_possession(["https://b.example"], link, &good), "another server");
    assert!(!is_possession(ours, "BAAAAAAAAAAAAAAAAAAAAA", &good), "another link");
    let swapped = |change: fn(&mut DeviceLinkRequest)| {
        let mut changed = good.clone();
        change(&mut changed);
        let text = LinkText::of(origin, link, &changed);
        (is_possession(ours, link, &changed), text.is_mac(&[7; 32], &changed.mac))
    };
    assert_eq!(swapped(|_| ()), (true, true));
    assert_eq!(swapped(|request| request.public_key = Blob::new(public(2)).unwrap()), (false, false));
    assert_eq!(swapped(|request| request.box_key = Blob::new(box_key(9)).unwrap()), (false, false));
    assert_eq!(swapped(|request| request.name = Text::new("other").unwrap()), (false, false));
    assert_eq!(swapped(|request| request.kind = DeviceKind::Cli), (false, false));
    assert_eq!(swapped(|request| request.by = Some(Blob::new(public(2)).unwrap())), (false, false));
    assert_eq!(swapped(|request| request.mac = Blob::new("A".repeat(43)).unwrap()), (true, false));
    let text = LinkText::of(origin, link, &good);
    assert!(!text.is_mac(&[8; 32], &good.mac), "another secret");
    assert!(!text.is_mac(&[7; 32], "AAAA"));
    let digits = text.digits(&[7; 32]).unwrap();
    assert!(digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_digit()), "{digits}");
    assert_ne!(text.digits(&[8; 32]), Some(digits));
}

proptest! {
    #[test]
    fn no_text_is_a_list_by_chance(text in "[ -~]{1,200}") {
        let refused = List::first(&sign_text(&text, 1), &public(1));
        prop_assert!(matches!(refused, Err(ListError::Malformed(_))));
    }
}

#[test]
fn a_machine_confirms_a_removal_with_its_signature() {
    let list = begun();
    let machine: MachineId = "m4".parse().unwrap();
    assert_eq!(list.unconfirmed(|_| None), [] as [&MachineId; 0], "nothing was removed");
    let removed = list.next(&sign(&with_new_epoch(without(&list, 3)), 1)).unwrap();
    assert_eq!(removed.unconfirmed(|_| None), [&machine]);
    let say = |list: &List, signer: u8, digest: &str| {
        let text = seen_text(&public(1), &machine, list.version(), digest);
        let sig = encode(&key(signer).sign(&text).to_bytes());
        SeenList { version: list.version(), digest: Blob::new(digest).unwrap(), sig: Blob::new(sig).unwrap() }
    };
    let good = say(&removed, 4, &removed.digest_text());
    // A branch that the removed device has signed itself, as far as a server shows it to the machine.
    let forked = list.next(&sign(&after(&list), 2)).unwrap();
    let branch = forked.next(&sign(&after(&forked), 2)).unwrap();
    assert_eq!(removed.unconfirmed(|_| Some(&good)), [] as [&MachineId; 0]);
    for (bad, why) in [
        (say(&removed, 2, &removed.digest_text()), "another key has signed it"),
        (say(&removed, 4, &list.digest_text()), "of this version there is another list"),
        (say(&list, 4, &list.digest_text()), "it is the list before"),
        (SeenList { version: good.version + 1, ..good.clone() }, "it has not signed this version"),
        (say(&branch, 4, &branch.digest_text()), "it follows the device that was removed"),
    ] {
        assert_eq!(removed.unconfirmed(|_| Some(&bad)), [&machine], "{why}");
    }
    // It stays so until the machine has confirmed that list, or a later one, or is gone.
    let later = removed.next(&sign(&after(&removed), 1)).unwrap();
    assert_eq!(later.unconfirmed(|_| None), [&machine]);
    assert_eq!(later.unconfirmed(|_| Some(&good)), [] as [&MachineId; 0]);
    let of_branch = say(&branch, 4, &branch.digest_text());
    assert_eq!((of_branch.version, later.unconfirmed(|_| Some(&of_branch))), (later.version(), vec![&machine]));
    let newer = later.next(&sign(&after(&later), 1)).unwrap();
    let seen = say(&newer, 4, &newer.digest_text());
    assert_eq!(later.unconfirmed(|_| Some(&seen)), [&machine], "that list is read first");
    assert_eq!(newer.unconfirmed(|_| Some(&seen)), [] as [&MachineId; 0]);
    let kept = List::remembered(later.signed()).unwrap().with_removal(later.removal().cloned());
    assert_eq!(kept.unconfirmed(|_| None), [&machine]);
    let gone = later.next(&sign(&without(&later, 4), 1)).unwrap();
    assert_eq!(gone.unconfirmed(|_| None), [] as [&MachineId; 0]);
    let words = list.next(&sign(&with_new_epoch(without(&list, 5)), 1)).unwrap();
    assert!(words.removal().unwrap().is_of_words && !removed.removal().unwrap().is_of_words);
    // A machine that was added later has never obeyed the device.
    let mut added = after(&later);
    added.devices.push(device(9, Role::Machine));
    assert_eq!(later.next(&sign(&added, 1)).unwrap().unconfirmed(|_| None), [&machine]);
}

#[test]
fn a_machine_is_of_a_device_of_the_account() {
    let of = |by: Option<String>| ListedDevice { by, ..device(3, Role::Machine) };
    let signs = |body: &DeviceList| sign(body, 1);
    let list = |devices: Vec<ListedDevice>| DeviceList { devices, ..body(vec![]) };
    let first = |devices: Vec<ListedDevice>| List::first(&signs(&list(devices)), &public(1));
    let (one, two) = (|| device(1, Role::Primary), || device(2, Role::Linked));
    assert!(first(vec![one(), of(Some(public(1)))]).is_ok() && first(vec![one(), two(), of(Some(public(2)))]).is_ok());
    for by in [public(4), public(3)] {
        let refused = first(vec![one(), of(Some(by))]).unwrap_err();
        assert!(matches!(refused, ListError::Maker(_)), "{refused}");
    }
    assert!(matches!(first(vec![one(), of(Some("x".to_owned()))]), Err(ListError::Malformed(_))));
    let person = ListedDevice { by: Some(public(1)), ..two() };
    assert!(matches!(first(vec![one(), person]), Err(ListError::Malformed(_))), "it belongs to machines");

    // It stays when the device goes, and is not made up afterwards.
    let before = first(vec![one(), two(), of(Some(public(2)))]).unwrap();
    let next = |devices| {
        let (content_epoch, content_public_key) = (2, box_key(250));
        let next = before.successor(Timestamp::from_unix_seconds(1));
        before.next(&signs(&DeviceList { devices, content_epoch, content_public_key, ..next }))
    };
    assert!(next(vec![one(), of(Some(public(2)))]).is_ok());
    let other = ListedDevice { by: Some(public(9)), ..device(3, Role::Machine) };
    assert!(matches!(next(vec![one(), other]), Err(ListError::Maker(_))));
}
