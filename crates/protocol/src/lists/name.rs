//! Names of devices. A list has a commitment to each, so a server that keeps the names cannot give a device another one.

use std::collections::{BTreeMap, HashMap};

use ensemble_types::devices::{DeviceList, DeviceName, ListedDevice};
use ensemble_types::text::{Blob, Text};
use rand::RngCore as _;
use rand::rngs::OsRng;
use sha2::{Digest as _, Sha256};
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use super::bytes::{decode, encode};
use super::list::List;
use crate::hidden::is_hidden;

/// Bytes of a name.
pub const MOST_NAME_BYTES: usize = 64;

/// Names that do not belong to a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("must have exactly the devices that have a `name` in the list")]
    Others,
    #[error("the name of {0} does not open its commitment in the list")]
    Commitment(String),
    #[error(
        "a name must have 1 to {MOST_NAME_BYTES} bytes in NFC, without control, format and direction characters: {0}"
    )]
    Form(String),
    #[error("two devices have the name {0}; upper and lower case are the same")]
    Twice(String),
}

/// The commitment that an entry has as its `name`. `None`: the salt is no 16 bytes.
pub fn commitment(name: &DeviceName) -> Option<String> {
    let salt: [u8; 16] = decode(&name.salt)?;
    let digest = Sha256::new().chain_update("ensemble-device-name-v1\n").chain_update(salt);
    Some(encode(&digest.chain_update(name.name.as_bytes()).finalize()))
}

/// Whether a device may have this name.
pub fn is_name(text: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&text.len()) && !text.chars().any(is_bad) && is_nfc(text) && text.trim() == text
}

fn is_bad(letter: char) -> bool {
    letter.is_control() || is_hidden(letter)
}

/// The name that is nearest to what a person typed or a computer is called. `None`: nothing is left of it.
fn nearest(text: &str, most: usize) -> Option<String> {
    let text: String = text.chars().filter(|c| !is_bad(*c)).nfc().collect();
    let mut name = String::new();
    for letter in text.trim().chars() {
        if name.len() + letter.len_utf8() > most {
            break;
        }
        name.push(letter);
    }
    let name = name.trim_end();
    (!name.is_empty()).then(|| name.to_owned())
}

fn folded(name: &str) -> String {
    name.to_lowercase()
}

fn opens(device: &ListedDevice, name: &DeviceName) -> bool {
    device.name.is_some() && device.name == commitment(name)
}

impl List {
    /// Whether these are the names of this list.
    ///
    /// # Errors
    /// They are not, or a device may not have such a name.
    pub fn check_names(&self, given: &BTreeMap<String, DeviceName>) -> Result<(), NameError> {
        let named = self.body().devices.iter().filter(|device| device.name.is_some());
        let mut found = HashMap::new();
        for device in named {
            let given = given.get(&device.key).ok_or(NameError::Others)?;
            if !opens(device, given) {
                return Err(NameError::Commitment(device.key.clone()));
            }
            if !is_name(&given.name) {
                return Err(NameError::Form(device.key.clone()));
            }
            if found.insert(folded(&given.name), ()).is_some() {
                return Err(NameError::Twice(given.name.to_string()));
            }
        }
        if found.len() == given.len() { Ok(()) } else { Err(NameError::Others) }
    }
}

/// The names of devices that were checked against a list, by public key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, DeviceName>);

impl Names {
    /// Those that open their commitments and are good. Of devices with one name none has it.
    pub fn opened(list: &DeviceList, mut given: BTreeMap<String, DeviceName>) -> Self {
        let mut counts: HashMap<String, usize> = HashMap::new();
        let entry = |key: &str| list.devices.iter().find(|device| device.key == *key);
        given.retain(|key, name| is_name(&name.name) && entry(key).is_some_and(|device| opens(device, name)));
        for name in given.values() {
            *counts.entry(folded(&name.name)).or_default() += 1;
        }
        given.retain(|_, name| counts.get(&folded(&name.name)) == Some(&1));
        Self(given)
    }

    /// The name of the device with this public key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|name| &*name.name)
    }

    /// Whether they are the names of all devices that have one in the list.
    pub fn are_all_of(&self, list: &DeviceList) -> bool {
        let mut named = list.devices.iter().filter(|device| device.name.is_some());
        named.all(|device| self.0.get(&device.key).is_some_and(|name| opens(device, name)))
    }

    /// Whether another device than this one has the name.
    pub fn has_other(&self, key: &str, name: &str) -> bool {
        self.0.iter().any(|(other, given)| other != key && folded(&given.name) == folded(name))
    }

    /// Names a device of a list that is not signed yet, with a number where another one has the name. A device that is called nothing
    /// gets no name.
    pub fn give(&mut self, device: &mut ListedDevice, wanted: &str) {
        let numbered = |number: u32| match number {
            1 => nearest(wanted, MOST_NAME_BYTES),
            _ => nearest(wanted, MOST_NAME_BYTES - 4).map(|name| format!("{name} {number}")),
        };
        let free = (1..1_000).map_while(numbered).find(|name| !self.has_other(&device.key, name));
        let mut salt = [0; 16];
        OsRng.fill_bytes(&mut salt);
        let named = free.and_then(|name| {
            let name = DeviceName { salt: Blob::new(encode(&salt)).ok()?, name: Text::new(name).ok()? };
            Some((commitment(&name)?, name))
        });
        match named {
            Some((commitment, name)) => {
                device.name = Some(commitment);
                self.0.insert(device.key.clone(), name);
            }
            None => {
                device.name = None;
                self.0.remove(&device.key);
            }
        }
    }

    /// What is sent with the next list, which is not signed yet. A device whose name is not known here loses it: the server has not given
    /// the one that was signed.
    pub fn for_next(mut self, next: &mut DeviceList) -> BTreeMap<String, DeviceName> {
        for device in &mut next.devices {
            device.name = device.name.take().filter(|_| self.0.contains_key(&device.key));
        }
        self.0.retain(|key, _| next.devices.iter().any(|device| device.key == *key));
        self.0
    }

    /// To keep them.
    pub fn given(&self) -> &BTreeMap<String, DeviceName> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::devices::Role;
    use ensemble_types::time::Timestamp;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        names: Vec<Vector>,
        bad: Vec<String>,
        same: Vec<[String; 2]>,
        different: Vec<[String; 2]>,
        nearest: Vec<(String, Option<String>)>,
        numbered: Vec<(String, Vec<String>, String)>,
    }

    #[derive(Deserialize)]
    struct Vector {
        #[serde(flatten)]
        name: DeviceName,
        commitment: String,
    }

    fn vectors() -> Vectors {
        serde_json::from_str(include_str!("../../vectors/names.json")).unwrap()
    }

    fn device(number: u8) -> ListedDevice {
        ListedDevice {
            key: encode(&[number; 32]),
            box_key: String::new(),
            role: Role::Linked,
            machine_id: None,
            name: None,
            by: None,
        }
    }

    fn list(devices: Vec<ListedDevice>) -> DeviceList {
        let (account, content_public_key) = (String::new(), String::new());
        let created = Timestamp::from_unix_seconds(0);
        DeviceList { account, version: 1, prev: None, created, content_epoch: 1, content_public_key, devices }
    }

    #[test]
    fn the_vectors_hold() {
        let vectors = vectors();
        for Vector { name, commitment: expected } in &vectors.names {
            assert!(is_name(&name.name), "{name:?}");
            assert_eq!(commitment(name).as_ref(), Some(expected), "{name:?}");
        }
        for bad in &vectors.bad {
            assert!(!is_name(bad), "{bad:?}");
        }
        let is_same = |[one, other]: &[String; 2]| folded(one) == folded(other);
        assert!(vectors.same.iter().all(is_same) && !vectors.different.iter().any(is_same));
        for (given, expected) in &vectors.nearest {
            assert_eq!(nearest(given, MOST_NAME_BYTES), *expected, "{given:?}");
        }
    }

    #[test]
    fn a_device_gets_a_name_that_no_other_one_has() {
        for (wanted, taken, expected) in vectors().numbered {
            let (mut names, mut devices) = (Names::default(), Vec::new());
            for (number, name) in (1..).zip(&taken) {
                let mut device = device(number);
                names.give(&mut device, name);
                devices.push(device);
            }
            let mut new = device(100);
            names.give(&mut new, &wanted);
            assert_eq!(names.get(&new.key), Some(&*expected));
            devices.push(new);
            let list = list(devices);
            assert!(names.are_all_of(&list));
            assert_eq!(Names::opened(&list, names.given().clone()), names);
        }
        let (mut names, mut nameless) = (Names::default(), device(1));
        names.give(&mut nameless, "\u{200b} ");
        assert_eq!((nameless.name, names), (None, Names::default()));
    }

    #[test]
    fn a_name_that_does_not_open_its_commitment_is_none() {
        let (mut names, mut one, mut other) = (Names::default(), device(1), device(2));
        names.give(&mut one, "laptop");
        names.give(&mut other, "phone");
        let mut given = names.given().clone();
        let swapped = [(one.key.clone(), given[&other.key].clone()), (other.key.clone(), given[&one.key].clone())];
        let list = list(vec![one.clone(), other.clone(), device(3)]);
        assert_eq!(Names::opened(&list, swapped.into()), Names::default(), "the server has swapped them");

        // Without a good name an entry of the next list has none.
        given.remove(&other.key);
        let names = Names::opened(&list, given);
        assert!(!names.are_all_of(&list) && names.get(&one.key) == Some("laptop"));
        let mut next = list.clone();
        let sent = names.for_next(&mut next);
        let named: Vec<bool> = next.devices.iter().map(|device| device.name.is_some()).collect();
        assert_eq!((named, sent.len()), (vec![true, false, false], 1));
    }

    #[test]
    fn of_two_devices_with_one_name_none_has_it() {
        let (mut first, mut second) = (Names::default(), Names::default());
        let (mut one, mut other) = (device(1), device(2));
        first.give(&mut one, "Laptop");
        second.give(&mut other, "laptop");
        let given = first.given().iter().chain(second.given()).map(|(key, name)| (key.clone(), name.clone()));
        assert_eq!(Names::opened(&list(vec![one, other]), given.collect()), Names::default());
    }
}
