//! Which change of a device list the service accepts, beside the rules that `ensemble_devices` has for lists.

use std::collections::BTreeMap;

use ensemble_devices::{List, ListError, decode, encode, is_proof};
use ensemble_types::devices::{DeviceLinkRequest, ListedDevice, Role, SealedContentRing, SignedList};
use ensemble_types::text::{Blob, Text};

/// Bytes of a list's body.
const MOST_BYTES: usize = 16 << 10;

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
    #[error("must be of devices in the list")]
    Names,
    #[error(
        "a device that is a machine or recovery words stays what it is; make a new key for another role or machine"
    )]
    RoleOfKey,
    #[error(
        "the key {0} has not proven that somebody holds it; link the device and send `link`, or send its signature in `proofs`"
    )]
    Unproven(String),
    #[error("the list does not add the device that asked for this link, with the two keys that it sent")]
    OtherLink,
}

/// What vouches for the keys that a list adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vouching<'a> {
    /// The account key.
    pub(crate) account: &'a [u8; 32],
    /// The device that asked to be linked, and signed that with its key.
    pub(crate) linked: Option<&'a DeviceLinkRequest>,
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

    /// Whether somebody holds each key that is added, and lets this account list it. The account key has signed the first list,
    /// a linked device its request, and any other key a text that names the account.
    pub(crate) fn check_possession(&self, vouching: Vouching<'_>) -> Result<(), BadList> {
        let account = encode(vouching.account);
        let is_proven = |device: &ListedDevice| {
            let is_linked = vouching.linked.is_some_and(|request| is_of(request, device));
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
    let needed = list.body().devices.iter().filter(|device| device.role.opens_contents());
    let rings: Option<Vec<_>> = needed.map(|device| Some((decode(&device.key)?, sealed.get(&device.key)?))).collect();
    rings.filter(|rings| rings.len() == sealed.len()).ok_or(BadList::Sealed)
}

pub(crate) fn check_names(list: &List, names: &BTreeMap<String, Text<0, 64>>) -> Result<(), BadList> {
    if names.keys().all(|key| list.device(key).is_some()) { Ok(()) } else { Err(BadList::Names) }
}
