//! One device list, checked by itself and against the one before it.

use std::collections::HashSet;

use ensemble_types::devices::{DeviceList, ListedDevice, Role, SignedList};
use ensemble_types::ids::MachineId;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::bytes::{decode, encode, is_signed, is_small_order, signing_key};

pub const MOST_DEVICES: usize = 64;
pub const MOST_VERSIONS: u32 = 10_000;

/// SHA-256 of a list's body.
pub type Digest = [u8; 32];

/// A list whose signature, form and origin were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    signed: SignedList,
    list: DeviceList,
    digest: Digest,
    removal: Option<Removal>,
}

/// The newest list in which a device is missing that could command or sign lists, and what has to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The version of that list, which is that of the first digest.
    pub version: u32,
    /// The digests of that list and of those that have followed it. A machine that follows a branch of the removed device names another one.
    pub digests: Vec<String>,
    /// The keys of the machines in it, which obeyed the device.
    pub machines: Vec<String>,
    /// Only recovery words were replaced.
    #[serde(default)]
    pub is_of_words: bool,
}

/// The number of digests that are kept. A machine that has named none of them has to confirm the removal again.
const MOST_DIGESTS: usize = 256;

/// Why a list is refused. The text says what happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    #[error("the device list does not have the form of one: {0}")]
    Malformed(String),
    #[error("the device list is not signed by the key that it names")]
    Signature,
    #[error("the device list is of another account")]
    OtherAccount,
    #[error("the first device list must be signed by the account's first device, as a primary one")]
    NotFirst,
    #[error("the device list is signed by a key that may not sign lists of this account")]
    Signer,
    #[error("the device list has version {found}; the next one is {expected}")]
    Version { expected: u32, found: u32 },
    #[error("the device list does not follow the previous one: another one was made in between")]
    Forked,
    #[error("the device list has content epoch {found}, and must have {expected}: {why}")]
    Epoch { expected: u32, found: u32, why: &'static str },
    #[error("the device list names a device as the computer of machine {0} that is none of the account")]
    Maker(MachineId),
    #[error("the device list leaves no device that can sign the next one")]
    NoSigner,
}

/// What a list's signer signs: `ensemble-devices-v1`, a line feed and the body.
pub fn signed_text(body: &str) -> Vec<u8> {
    let mut text = b"ensemble-devices-v1\n".to_vec();
    text.extend_from_slice(body.as_bytes());
    text
}

impl List {
    /// Version 1 of the account with this public key.
    pub fn first(signed: &SignedList, account: &str) -> Result<Self, ListError> {
        let list = Self::checked(signed)?;
        if list.list.account != account {
            return Err(ListError::OtherAccount);
        }
        if list.list.version != 1 {
            return Err(ListError::Version { expected: 1, found: list.list.version });
        }
        let is_primary = list.device(account).is_some_and(|device| device.role == Role::Primary);
        if *list.signed.signer != *account || !is_primary || list.list.prev.is_some() {
            return Err(ListError::NotFirst);
        }
        if let Some(machine) = list.made_by_none(None) {
            return Err(ListError::Maker(machine.clone()));
        }
        match list.list.content_epoch {
            1 => Ok(list),
            found => Err(ListError::Epoch { expected: 1, found, why: "it is the first list" }),
        }
    }

    /// The version after this one.
    pub fn next(&self, signed: &SignedList) -> Result<Self, ListError> {
        let next = Self::checked(signed)?;
        let (old, new) = (&self.list, &next.list);
        if new.account != old.account {
            return Err(ListError::OtherAccount);
        }
        let expected = old.version.saturating_add(1);
        if new.version != expected {
            return Err(ListError::Version { expected, found: new.version });
        }
        if new.prev.as_deref() != Some(&*self.digest_text()) {
            return Err(ListError::Forked);
        }
        if !self.device(&next.signed.signer).is_some_and(|signer| signer.role.signs_lists()) {
            return Err(ListError::Signer);
        }
        if let Some(machine) = next.made_by_none(Some(self)) {
            return Err(ListError::Maker(machine.clone()));
        }
        let opened = |list: &DeviceList| -> HashSet<(String, String)> {
            let devices = list.devices.iter().filter(|device| device.role.opens_contents());
            devices.map(|device| (device.key.clone(), device.box_key.clone())).collect()
        };
        let is_one_gone = !opened(old).is_subset(&opened(new));
        let has_new_key = new.content_public_key != old.content_public_key;
        let found = new.content_epoch;
        match found.checked_sub(old.content_epoch) {
            Some(0) if is_one_gone => Err(ListError::Epoch {
                expected: old.content_epoch + 1,
                found,
                why: "a device that could open contents is gone",
            }),
            Some(0) if has_new_key => {
                Err(ListError::Epoch { expected: old.content_epoch + 1, found, why: "the content key is another one" })
            }
            Some(1) if !has_new_key => {
                Err(ListError::Epoch { expected: old.content_epoch, found, why: "the content key is the same" })
            }
            Some(0 | 1) => {
                let removal = self.removal_in(&next);
                Ok(Self { removal, ..next })
            }
            _ => Err(ListError::Epoch {
                expected: old.content_epoch,
                found,
                why: "an epoch is at most one above the one before",
            }),
        }
    }

    /// A machine whose `by` is no device of a person, in this list or the one before, and was not there before.
    fn made_by_none(&self, before: Option<&Self>) -> Option<&MachineId> {
        let is_person = |list: &Self, key: &str| list.device(key).is_some_and(|device| device.role.shares_sessions());
        let is_unknown = |device: &&ListedDevice| {
            device.by.as_ref().is_some_and(|by| {
                let was_there =
                    before.and_then(|before| before.device(&device.key)).is_some_and(|old| old.by == device.by);
                !was_there && !is_person(self, by) && !before.is_some_and(|before| is_person(before, by))
            })
        };
        self.list.devices.iter().find(is_unknown).and_then(|device| device.machine_id.as_ref())
    }

    /// What is known of removals in the list after this one.
    fn removal_in(&self, next: &Self) -> Option<Removal> {
        let is_gone = |old: &&ListedDevice| old.role != Role::Machine && next.device(&old.key).is_none();
        let gone: Vec<&ListedDevice> = self.list.devices.iter().filter(is_gone).collect();
        if gone.is_empty() {
            let mut removal = self.removal.clone()?;
            removal.digests.push(next.digest_text());
            let surplus = removal.digests.len().saturating_sub(MOST_DIGESTS);
            removal.version = removal.version.saturating_add(u32::try_from(surplus).unwrap_or(u32::MAX));
            removal.digests.drain(..surplus);
            return Some(removal);
        }
        let machines = next.list.devices.iter().filter(|device| device.role == Role::Machine);
        let is_of_words = gone.iter().all(|device| device.role == Role::Recovery);
        let is_open = self.removal.as_ref().is_some_and(|before| !before.is_of_words);
        Some(Removal {
            version: next.version(),
            digests: vec![next.digest_text()],
            machines: machines.map(|device| device.key.clone()).collect(),
            is_of_words: is_of_words && !is_open,
        })
    }

    /// The body of the version after this one, with nothing changed yet.
    pub fn successor(&self, created: Timestamp) -> DeviceList {
        let prev = Some(self.digest_text());
        DeviceList { version: self.list.version.saturating_add(1), prev, created, ..self.list.clone() }
    }

    /// Form, bounds and signature.
    fn checked(signed: &SignedList) -> Result<Self, ListError> {
        let list: DeviceList =
            serde_json::from_str(&signed.body).map_err(|error| ListError::Malformed(error.to_string()))?;
        check_form(&list).map_err(|what| ListError::Malformed(what.to_owned()))?;
        if !is_signed(&signed.signer, &signed_text(&signed.body), &signed.signature) {
            return Err(ListError::Signature);
        }
        if !list.devices.iter().any(|device| device.role.signs_lists()) {
            return Err(ListError::NoSigner);
        }
        let digest = Sha256::digest(signed.body.as_bytes()).into();
        Ok(Self { signed: signed.clone(), list, digest, removal: None })
    }

    /// A list that was checked before and kept in a safe place.
    pub fn remembered(signed: &SignedList) -> Result<Self, ListError> {
        Self::checked(signed)
    }

    /// The same, with what was kept of [`Self::removal`].
    #[must_use]
    pub fn with_removal(self, removal: Option<Removal>) -> Self {
        Self { removal, ..self }
    }

    /// The last removal of a device that could command, up to this list, if one is known.
    pub fn removal(&self) -> Option<&Removal> {
        self.removal.as_ref()
    }

    pub fn signed(&self) -> &SignedList {
        &self.signed
    }

    pub fn body(&self) -> &DeviceList {
        &self.list
    }

    pub fn version(&self) -> u32 {
        self.list.version
    }

    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The digest as lists name it in `prev`.
    pub fn digest_text(&self) -> String {
        encode(&self.digest)
    }

    /// The device with this public key.
    pub fn device(&self, key: &str) -> Option<&ListedDevice> {
        self.list.devices.iter().find(|device| device.key == key)
    }

    /// The devices to which the content ring is sealed.
    pub fn openers(&self) -> impl Iterator<Item = &ListedDevice> {
        self.list.devices.iter().filter(|device| device.role.opens_contents())
    }
}

fn check_form(list: &DeviceList) -> Result<(), &'static str> {
    let is_x25519 = |key: &str| decode::<32>(key).is_some_and(|key| !is_small_order(&key));
    if signing_key(&list.account).is_none() {
        return Err("account is no Ed25519 public key in base64url without padding");
    }
    if !(1..=MOST_VERSIONS).contains(&list.version) {
        return Err("version must be 1 to 10000");
    }
    if list.prev.as_deref().is_some_and(|prev| decode::<32>(prev).is_none()) {
        return Err("prev is no SHA-256");
    }
    if !is_x25519(&list.content_public_key) {
        return Err("contentPublicKey is no X25519 public key in base64url without padding, or of small order");
    }
    if !(1..=MOST_DEVICES).contains(&list.devices.len()) {
        return Err("devices must have 1 to 64 entries");
    }
    let mut keys = HashSet::new();
    for device in &list.devices {
        if signing_key(&device.key).is_none() {
            return Err("a key is no Ed25519 public key in base64url without padding, or of small order");
        }
        if !is_x25519(&device.box_key) {
            return Err("a boxKey is no X25519 public key in base64url without padding, or of small order");
        }
        if !keys.insert(&device.key) || !keys.insert(&device.box_key) {
            return Err("a key is there twice");
        }
        if (device.role == Role::Machine) != device.machine_id.is_some() {
            return Err("machineId belongs to the role machine, and to no other");
        }
        if device.by.as_deref().is_some_and(|by| device.role != Role::Machine || signing_key(by).is_none()) {
            return Err("by is the key of a device, and belongs to the role machine");
        }
        if device.name.as_deref().is_some_and(|name| decode::<32>(name).is_none()) {
            return Err("a name is no SHA-256");
        }
    }
    let count = |role| list.devices.iter().filter(|device| device.role == role).count();
    if count(Role::Recovery) > 1 {
        return Err("there is more than one recovery entry");
    }
    let machines: HashSet<_> = list.devices.iter().filter_map(|device| device.machine_id.as_ref()).collect();
    if machines.len() < count(Role::Machine) {
        return Err("a machine is there twice");
    }
    Ok(())
}
