//! Which change of a device list the service accepts, in addition to the rules that `ensemble_protocol::lists` has for lists.

use std::collections::BTreeMap;

use ensemble_protocol::lists::{List, ListError, NameError, decode, encode, is_proof};
use ensemble_types::devices::{ChangeDevices, DeviceLinkRequest, ListedDevice, Role, SealedContentRing, SignedList};
use ensemble_types::text::Blob;

/// Bytes of a list's body.
const MOST_BYTES: usize = 32 << 10;
/// Lists that are taken at once.
const MOST_LISTS: usize = 64;

/// A list that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadList {
    /// It does not follow the newest one.
    #[error("the device list does not follow the newest one")]
    NotNext,
    #[error(transparent)]
    List(#[from] ListError),
    #[error("the body must be at most {MOST_BYTES} bytes")]
    TooLong,
    #[error("must have exactly the devices of the list whose role is primary, linked or recovery")]
    Sealed,
    #[error(transparent)]
    Names(#[from] NameError),
    #[error(
        "a device that is a machine or recovery words stays what it is; make a new key for another role or machine"
    )]
    RoleOfKey,
    #[error(
        "the key {0} has no proof of possession; link the device and send `link`, or send its signature in `proofs`"
    )]
    Unproven(String),
    #[error("the list does not add the device that asked for this link, with the two keys that it sent")]
    OtherLink,
    #[error("must have 1 to {MOST_LISTS} lists, and come without `list` and `link`; a next list alone is `list`")]
    Lists,
    #[error("must have at most {MOST_LISTS} linkings, and come with `lists`")]
    Links,
}

/// What vouches for the keys that a list adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vouching<'a> {
    /// The account key.
    pub(crate) account: &'a [u8; 32],
    /// The device that asked to be linked, and signed that with its key.
    pub(crate) linked: Option<&'a DeviceLinkRequest>,
    /// Devices that did so before the service has lost their lists.
    pub(crate) past: &'a [&'a DeviceLinkRequest],
    /// Signatures by the keys themselves.
    pub(crate) proofs: &'a BTreeMap<String, Blob<86, 86>>,
}

/// What a list changes.
#[derive(Debug)]
pub(crate) struct Difference<'a> {
    pub(crate) added: Vec<&'a ListedDevice>,
    pub(crate) kept: Vec<&'a ListedDevice>,
    pub(crate) removed: Vec<&'a ListedDevice>,
}

/// The lists of a change, the oldest first, and whether the service has lost them.
pub(crate) fn lists(change: &ChangeDevices) -> Result<(&[SignedList], bool), BadList> {
    match &change.list {
        Some(_) if !change.lists.is_empty() => Err(BadList::Lists),
        Some(_) if !change.links.is_empty() => Err(BadList::Links),
        Some(list) => Ok((std::slice::from_ref(list), false)),
        None if change.link.is_some() || !(1..=MOST_LISTS).contains(&change.lists.len()) => Err(BadList::Lists),
        None if change.links.len() > MOST_LISTS => Err(BadList::Links),
        None => Ok((&change.lists, true)),
    }
}

/// The list, if it may follow the newest one of the account.
pub(crate) fn follow(account: &[u8; 32], newest: Option<&List>, signed: &SignedList) -> Result<List, BadList> {
    if signed.body.len() > MOST_BYTES {
        return Err(BadList::TooLong);
    }
    let next = match newest {
        None => List::first(signed, &encode(account)),
        Some(newest) => newest.next(signed),
    };
    next.map_err(|error| match error {
        ListError::Version { .. } | ListError::Forked => BadList::NotNext,
        other => BadList::List(other),
    })
}

impl<'a> Difference<'a> {
    pub(crate) fn new(old: Option<&'a List>, new: &'a List) -> Result<Self, BadList> {
        let devices = |list: Option<&'a List>| list.map_or(&[][..], |list| &list.body().devices);
        let (kept, added): (Vec<_>, Vec<_>) =
            devices(Some(new)).iter().partition(|device| old.is_some_and(|old| old.device(&device.key).is_some()));
        let removed = devices(old).iter().filter(|device| new.device(&device.key).is_none()).collect();
        // The tokens of such a key are of another kind, and those it has would outlive the change.
        let has_changed = |device: &&&ListedDevice| {
            let before = old.and_then(|old| old.device(&device.key));
            before
                .is_some_and(|before| before.machine_id != device.machine_id || !is_same_kind(before.role, device.role))
        };
        if kept.iter().any(|device| has_changed(&device)) {
            return Err(BadList::RoleOfKey);
        }
        Ok(Self { added, kept, removed })
    }

    /// Whether the holder of each added key lets this account list it. The account key has signed the first list,
    /// a linked device its request, and any other key a text that names the account.
    pub(crate) fn check_possession(&self, vouching: Vouching<'_>) -> Result<(), BadList> {
        let account = encode(vouching.account);
        let is_proven = |device: &ListedDevice| {
            let is_linked = vouching.linked.iter().chain(vouching.past).any(|request| is_of(request, device));
            let proof = vouching.proofs.get(&device.key);
            is_linked || device.key == account || proof.is_some_and(|proof| is_proof(&account, device, proof))
        };
        if let Some(unproven) = self.added.iter().find(|device| !is_proven(device)) {
            return Err(BadList::Unproven(unproven.key.clone()));
        }
        match vouching.linked {
            Some(request) if !self.added.iter().any(|device| is_of(request, device)) => Err(BadList::OtherLink),
            _ => Ok(()),
        }
    }
}

fn is_same_kind(one: Role, other: Role) -> bool {
    let signs_in_as_user = |role| matches!(role, Role::Primary | Role::Linked);
    one == other || (signs_in_as_user(one) && signs_in_as_user(other))
}

fn is_of(request: &DeviceLinkRequest, device: &ListedDevice) -> bool {
    *request.public_key == *device.key && *request.box_key == *device.box_key && device.role != Role::Recovery
}

/// The content rings by key, if they are exactly those that the list needs.
pub(crate) fn rings<'s>(
    list: &List,
    sealed: &'s BTreeMap<String, SealedContentRing>,
) -> Result<Vec<([u8; 32], &'s SealedContentRing)>, BadList> {
    let rings: Option<Vec<_>> =
        list.openers().map(|device| Some((decode(&device.key)?, sealed.get(&device.key)?))).collect();
    rings.filter(|rings| rings.len() == sealed.len()).ok_or(BadList::Sealed)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};
    use ensemble_protocol::lists::{proof_text, signed_text};
    use ensemble_types::devices::{DeviceKind, DeviceList};
    use ensemble_types::text::Text;
    use ensemble_types::time::Timestamp;

    use super::*;

    fn key(number: u8) -> SigningKey {
        SigningKey::from_bytes(&[number; 32])
    }

    fn account() -> [u8; 32] {
        key(1).verifying_key().to_bytes()
    }

    fn public(number: u8) -> String {
        encode(key(number).verifying_key().as_bytes())
    }

    fn signed(number: u8, text: &[u8]) -> Blob<86, 86> {
        Blob::new(encode(&key(number).sign(text).to_bytes())).unwrap()
    }

    /// A machine has the id `m`.
    fn device(number: u8, role: Role) -> ListedDevice {
        let machine_id = (role == Role::Machine).then(|| "m".parse().unwrap());
        ListedDevice {
            key: public(number),
            box_key: encode(&[100 + number; 32]),
            role,
            machine_id,
            name: None,
            by: None,
        }
    }

    fn body(devices: Vec<ListedDevice>) -> DeviceList {
        DeviceList {
            account: public(1),
            version: 1,
            prev: None,
            created: Timestamp::from_unix_seconds(0),
            content_epoch: 1,
            content_public_key: encode(&[201; 32]),
            devices,
        }
    }

    /// Signed by the account key.
    fn sign(list: &DeviceList) -> SignedList {
        let body = serde_json::to_string(list).unwrap();
        let signature = signed(1, &signed_text(&body));
        SignedList { body: Text::new(body).unwrap(), signer: Blob::new(public(1)).unwrap(), signature }
    }

    fn list(devices: Vec<ListedDevice>) -> List {
        List::first(&sign(&body(devices)), &public(1)).unwrap()
    }

    fn primary() -> ListedDevice {
        device(1, Role::Primary)
    }

    #[test]
    fn a_list_that_does_not_follow_the_newest_one_can_be_made_again() {
        let first = list(vec![primary()]);
        let next = |version| sign(&DeviceList { version, ..first.successor(Timestamp::from_unix_seconds(1)) });
        assert!(follow(&account(), None, first.signed()).is_ok() && follow(&account(), Some(&first), &next(2)).is_ok());
        for (newest, signed) in [(None, next(2)), (Some(&first), next(3)), (Some(&first), first.signed().clone())] {
            assert_eq!(follow(&account(), newest, &signed), Err(BadList::NotNext), "{signed:?}");
        }
        let fork = sign(&DeviceList { version: 2, prev: Some(encode(&[0; 32])), ..body(vec![primary()]) });
        assert_eq!(follow(&account(), Some(&first), &fork), Err(BadList::NotNext));
        let other = follow(key(2).verifying_key().as_bytes(), None, first.signed());
        assert_eq!(other, Err(BadList::List(ListError::OtherAccount)), "it is never right");
    }

    #[test]
    fn a_list_has_at_most_32768_bytes() {
        let is_too_long = |body: String| {
            let signed = SignedList { body: Text::new(body).unwrap(), ..sign(&self::body(vec![primary()])) };
            follow(&account(), None, &signed) == Err(BadList::TooLong)
        };
        // A letter of two bytes: the interface bounds the characters.
        let longest = "ä".repeat(16_384);
        assert!(!is_too_long(longest.clone()) && is_too_long(longest + "a"));
    }

    #[test]
    fn a_change_names_who_came_stayed_and_went() {
        let old = list(vec![primary(), device(2, Role::Linked), device(3, Role::Linked)]);
        let new = list(vec![primary(), device(3, Role::Linked), device(4, Role::Linked)]);
        let keys =
            |devices: Vec<&ListedDevice>| devices.into_iter().map(|device| device.key.clone()).collect::<Vec<_>>();
        let change = Difference::new(Some(&old), &new).unwrap();
        assert_eq!(keys(change.added), [public(4)]);
        assert_eq!(keys(change.kept), [public(1), public(3)]);
        assert_eq!(keys(change.removed), [public(2)]);
        assert_eq!(keys(Difference::new(None, &new).unwrap().added), [public(1), public(3), public(4)]);
    }

    #[test]
    fn a_machine_and_recovery_words_stay_what_they_are() {
        use Role::{Linked, Machine, Primary, Recovery};
        for before in Role::ALL {
            let same_kind = match before {
                Primary | Linked => vec![Primary, Linked],
                Machine => vec![Machine],
                Recovery => vec![Recovery],
            };
            for after in Role::ALL {
                let (old, new) = (list(vec![primary(), device(2, before)]), list(vec![primary(), device(2, after)]));
                let change = Difference::new(Some(&old), &new);
                assert_eq!(change.is_ok(), same_kind.contains(&after), "{before:?} {after:?}");
            }
        }
        let other = ListedDevice { machine_id: Some("other".parse().unwrap()), ..device(2, Machine) };
        let (old, new) = (list(vec![primary(), device(2, Machine)]), list(vec![primary(), other]));
        assert_eq!(Difference::new(Some(&old), &new).map(drop), Err(BadList::RoleOfKey), "it is another machine");
    }

    /// The device with this number asks with a box key of this number.
    fn request(number: u8, box_key: u8) -> DeviceLinkRequest {
        let device = device(box_key, Role::Linked);
        DeviceLinkRequest {
            public_key: Blob::new(public(number)).unwrap(),
            box_key: Blob::new(device.box_key).unwrap(),
            name: Text::new("phone").unwrap(),
            kind: DeviceKind::Web,
            by: None,
            mac: Blob::new("A".repeat(43)).unwrap(),
            signature: Blob::new("A".repeat(86)).unwrap(),
        }
    }

    /// Whether device 2, with this role, may be added to the list.
    fn possession(
        role: Role,
        linked: Option<&DeviceLinkRequest>,
        proofs: &BTreeMap<String, Blob<86, 86>>,
    ) -> Result<(), BadList> {
        let (old, new) = (list(vec![primary()]), list(vec![primary(), device(2, role)]));
        let account = &account();
        Difference::new(Some(&old), &new).unwrap().check_possession(Vouching { account, linked, past: &[], proofs })
    }

    #[test]
    fn each_added_key_has_a_proof_of_possession() {
        let (none, unproven) = (BTreeMap::new(), Err(BadList::Unproven(public(2))));
        let proof = |account: u8, signer: u8| {
            let text = proof_text(&public(account), &device(2, Role::Linked));
            BTreeMap::from([(public(2), signed(signer, &text))])
        };
        assert_eq!(possession(Role::Linked, None, &proof(1, 2)), Ok(()));
        assert_eq!(possession(Role::Linked, None, &none), unproven);
        assert_eq!(possession(Role::Linked, None, &proof(1, 3)), unproven, "another key signed it");
        assert_eq!(possession(Role::Linked, None, &proof(3, 2)), unproven, "it names another account");
        assert_eq!(possession(Role::Primary, None, &proof(1, 2)), unproven, "it names another role");
        let first = list(vec![primary()]);
        let vouching = Vouching { account: &account(), linked: None, past: &[], proofs: &none };
        let first = Difference::new(None, &first).unwrap().check_possession(vouching);
        assert_eq!(first, Ok(()), "the account key has signed the list");
    }

    #[test]
    fn a_link_adds_the_device_that_asked_with_its_two_keys() {
        let none = BTreeMap::new();
        for role in [Role::Primary, Role::Linked, Role::Machine] {
            assert_eq!(possession(role, Some(&request(2, 2)), &none), Ok(()), "{role:?}");
        }
        let unproven = Err(BadList::Unproven(public(2)));
        for (role, asked) in [
            (Role::Linked, request(2, 3)),
            (Role::Linked, request(3, 2)),
            (Role::Linked, request(3, 3)),
            (Role::Recovery, request(2, 2)),
        ] {
            assert_eq!(possession(role, Some(&asked), &none), unproven, "{role:?} {asked:?}");
        }
        let proofs = BTreeMap::from([(public(2), signed(2, &proof_text(&public(1), &device(2, Role::Linked))))]);
        assert_eq!(possession(Role::Linked, Some(&request(2, 2)), &proofs), Ok(()));
        assert_eq!(possession(Role::Linked, Some(&request(3, 3)), &proofs), Err(BadList::OtherLink));
    }

    #[test]
    fn the_content_ring_is_sealed_to_those_who_open_contents_and_to_no_others() {
        let roles = [Role::Primary, Role::Linked, Role::Machine, Role::Recovery];
        let list = list((1..).zip(roles).map(|(number, role)| device(number, role)).collect());
        let found = |numbers: &[u8]| {
            let ring = |number: &u8| (public(*number), SealedContentRing::new("r").unwrap());
            let sealed = numbers.iter().map(ring).collect();
            rings(&list, &sealed).map(|rings| rings.into_iter().map(|(key, _)| encode(&key)).collect::<Vec<_>>())
        };
        assert_eq!(found(&[1, 2, 4]), Ok(vec![public(1), public(2), public(4)]));
        for wrong in [&[1, 2][..], &[1, 2, 3, 4], &[1, 2, 4, 5], &[1, 2, 5], &[]] {
            assert_eq!(found(wrong), Err(BadList::Sealed), "{wrong:?}");
        }
    }
}
