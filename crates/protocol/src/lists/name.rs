//! Names of devices and machines. A list has a commitment to each name, so the server that stores the names cannot change one.

use std::collections::{BTreeMap, HashMap, HashSet};

use ensemble_types::devices::{DeviceList, DeviceName, ListedDevice, Role};
use ensemble_types::text::{Blob, Text};
use rand::RngCore as _;
use rand::rngs::OsRng;
use sha2::{Digest as _, Sha256};
use unicode_normalization::UnicodeNormalization as _;

use super::bytes::{decode, encode};
use super::form::{MOST_MACHINE_BYTES, MOST_NAME_BYTES, folded, is_machine_name, is_name, numbered};
use super::list::List;

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
    #[error(
        "a machine's name must have 1 to {MOST_MACHINE_BYTES} of a-z 0-9 . _ - and begin with a letter or a digit: {0}"
    )]
    MachineForm(String),
    #[error("the names of some devices in the list are not known")]
    Unknown,
    #[error("two devices have the name {0}; upper and lower case are the same")]
    Twice(String),
}

/// The commitment that an entry has as its `name`. `None`: the salt is no 16 bytes.
pub fn commitment(name: &DeviceName) -> Option<String> {
    let salt: [u8; 16] = decode(&name.salt)?;
    let digest = Sha256::new().chain_update("ensemble-device-name-v1\n").chain_update(salt);
    Some(encode(&digest.chain_update(name.name.as_bytes()).finalize()))
}

fn check_form(device: &ListedDevice, name: &str) -> Result<(), NameError> {
    match device.role {
        Role::Machine if is_machine_name(name) => Ok(()),
        Role::Machine => Err(NameError::MachineForm(device.key.clone())),
        _ if is_name(name) => Ok(()),
        _ => Err(NameError::Form(device.key.clone())),
    }
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
        let named = self.body().devices.iter().filter(|device| device.name.is_some()).count();
        self.check_known_names(given)?;
        if given.len() == named { Ok(()) } else { Err(NameError::Others) }
    }

    /// Checks that these are names of this list. Some may be missing.
    ///
    /// # Errors
    /// A name is not in this list, or a device may not have it.
    pub fn check_known_names(&self, given: &BTreeMap<String, DeviceName>) -> Result<(), NameError> {
        let named = self.body().devices.iter().filter(|device| device.name.is_some());
        let mut found = HashSet::new();
        for device in named {
            let Some(given) = given.get(&device.key) else { continue };
            if !opens(device, given) {
                return Err(NameError::Commitment(device.key.clone()));
            }
            check_form(device, &given.name)?;
            if !found.insert(folded(&given.name)) {
                return Err(NameError::Twice(given.name.to_string()));
            }
        }
        if found.len() == given.len() { Ok(()) } else { Err(NameError::Others) }
    }
}

/// The names of devices that were checked against a list, by public key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    given: BTreeMap<String, DeviceName>,
    /// Whether devices of the list have other names, which are not known.
    lacks_some: bool,
}

impl Names {
    /// Those that open their commitments and are good. Of devices with one name none has it.
    pub fn opened(list: &DeviceList, mut given: BTreeMap<String, DeviceName>) -> Self {
        let mut counts: HashMap<String, usize> = HashMap::new();
        let entry = |key: &str| list.devices.iter().find(|device| device.key == *key);
        let is_good =
            |device: &ListedDevice, name: &DeviceName| opens(device, name) && check_form(device, &name.name).is_ok();
        given.retain(|key, name| entry(key).is_some_and(|device| is_good(device, name)));
        for name in given.values() {
            *counts.entry(folded(&name.name)).or_default() += 1;
        }
        given.retain(|_, name| counts.get(&folded(&name.name)) == Some(&1));
        let is_unknown = |device: &ListedDevice| device.name.is_some() && !given.contains_key(&device.key);
        let lacks_some = list.devices.iter().any(is_unknown);
        Self { given, lacks_some }
    }

    /// The name of the device with this public key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(|name| &*name.name)
    }

    /// Whether they are the names of all devices that have one in the list.
    pub fn are_all_of(&self, list: &DeviceList) -> bool {
        let mut named = list.devices.iter().filter(|device| device.name.is_some());
        named.all(|device| self.given.get(&device.key).is_some_and(|name| opens(device, name)))
    }

    /// Whether devices of the list have names that the server has not given.
    pub fn lacks_some(&self) -> bool {
        self.lacks_some
    }

    /// Whether another device than this one has the name.
    pub fn has_other(&self, key: &str, name: &str) -> bool {
        self.given.iter().any(|(other, given)| other != key && folded(&given.name) == folded(name))
    }

    /// Keeps only the names of devices that this list has, so that the names of removed devices can be given again.
    pub fn keep(&mut self, list: &DeviceList) {
        self.given.retain(|key, _| list.devices.iter().any(|device| device.key == *key));
    }

    /// Names a device of a list that is not signed yet, with a number where another one has the name. A device that is called nothing
    /// gets no name. None gets one while [`Self::lacks_some`]: the server could keep back the name of a device that has this one.
    pub fn give(&mut self, device: &mut ListedDevice, wanted: &str) {
        let numbered = |number| numbered(device.role, wanted, number);
        let mut free = (1..1_000).map_while(numbered).filter(|name| !self.has_other(&device.key, name));
        let free = if self.lacks_some { None } else { free.next() };
        self.set(device, free);
    }

    /// Gives a device of a list that is not signed yet exactly this name.
    ///
    /// # Errors
    /// The device may not have this name, or another one has it.
    pub fn rename(&mut self, device: &mut ListedDevice, name: &str) -> Result<(), NameError> {
        let name: String = name.nfc().collect();
        check_form(device, &name)?;
        if self.lacks_some {
            return Err(NameError::Unknown);
        }
        if self.has_other(&device.key, &name) {
            return Err(NameError::Twice(name));
        }
        self.set(device, Some(name));
        Ok(())
    }

    fn set(&mut self, device: &mut ListedDevice, name: Option<String>) {
        let mut salt = [0; 16];
        OsRng.fill_bytes(&mut salt);
        let named = name.and_then(|name| {
            let name = DeviceName { salt: Blob::new(encode(&salt)).ok()?, name: Text::new(name).ok()? };
            Some((commitment(&name)?, name))
        });
        match named {
            Some((commitment, name)) => {
                device.name = Some(commitment);
                self.given.insert(device.key.clone(), name);
            }
            None => {
                device.name = None;
                self.given.remove(&device.key);
            }
        }
    }

    /// What is sent with the next list, which is not signed yet. A device whose name is not known here loses it: the server has not given
    /// the one that was signed.
    pub fn for_next(mut self, next: &mut DeviceList) -> BTreeMap<String, DeviceName> {
        for device in &mut next.devices {
            device.name = device.name.take().filter(|_| self.given.contains_key(&device.key));
        }
        self.keep(next);
        self.given
    }

    /// To keep them.
    pub fn given(&self) -> &BTreeMap<String, DeviceName> {
        &self.given
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::time::Timestamp;
    use serde::Deserialize;

    use super::super::form::{nearest, nearest_of_machine};
    use super::*;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vectors {
        names: Vec<Vector>,
        bad: Vec<String>,
        same: Vec<[String; 2]>,
        different: Vec<[String; 2]>,
        nearest: Vec<(String, Option<String>)>,
        numbered: Vec<(String, Vec<String>, String)>,
        machine_good: Vec<String>,
        machine_bad: Vec<String>,
        machine_nearest: Vec<(String, String)>,
        machine_numbered: Vec<(String, Vec<String>, String)>,
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
        for good in &vectors.machine_good {
            assert!(is_machine_name(good) && is_name(good), "{good:?}");
        }
        for bad in &vectors.machine_bad {
            assert!(!is_machine_name(bad), "{bad:?}");
        }
        for (given, expected) in &vectors.machine_nearest {
            assert_eq!(nearest_of_machine(given, MOST_MACHINE_BYTES), *expected, "{given:?}");
        }
    }

    fn machine(number: u8) -> ListedDevice {
        let machine_id = Some(format!("m-{number}").parse().unwrap());
        ListedDevice { role: Role::Machine, machine_id, ..device(number) }
    }

    #[test]
    fn a_device_gets_a_name_that_no_other_one_has() {
        let Vectors { numbered, machine_numbered, .. } = vectors();
        let (of_devices, of_machines) = (numbered.into_iter(), machine_numbered.into_iter());
        for ((wanted, taken, expected), mut new) in
            of_devices.map(|vector| (vector, device(100))).chain(of_machines.map(|vector| (vector, machine(100))))
        {
            let (mut names, mut devices) = (Names::default(), Vec::new());
            for (number, name) in (1..).zip(&taken) {
                let mut device = device(number);
                names.give(&mut device, name);
                devices.push(device);
            }
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
    fn a_machine_has_no_name_that_only_a_device_may_have() {
        let (mut names, mut one, mut other) = (Names::default(), device(1), machine(2));
        names.give(&mut one, "Desk");
        assert_eq!(names.rename(&mut other, "desk"), Err(NameError::Twice("desk".to_owned())));
        assert_eq!(names.rename(&mut other, "Büro"), Err(NameError::MachineForm(other.key.clone())));
        assert_eq!(names.rename(&mut one, " Desk"), Err(NameError::Form(one.key.clone())));
        assert_eq!(names.get(&one.key), Some("Desk"), "what is refused changes nothing");
        names.rename(&mut one, "a\u{308}").unwrap();
        names.rename(&mut other, "desk").unwrap();
        assert_eq!((names.get(&one.key), names.get(&other.key)), (Some("\u{e4}"), Some("desk")));
        // A name that only a device may have, with a commitment in the entry of a machine.
        let mut given = names.given().clone();
        let mut as_device = ListedDevice { role: Role::Linked, machine_id: None, ..other.clone() };
        let mut of_device = Names::default();
        of_device.give(&mut as_device, "The Desk");
        given.insert(other.key.clone(), of_device.given()[&other.key].clone());
        let list = list(vec![one.clone(), ListedDevice { name: as_device.name, ..other.clone() }]);
        assert_eq!(Names::opened(&list, given).get(&other.key), None);
        names.keep(&DeviceList { devices: vec![one.clone()], ..list });
        assert_eq!((names.get(&one.key), names.get(&other.key)), (Some("\u{e4}"), None));
    }

    #[test]
    fn a_name_that_does_not_open_its_commitment_is_none() {
        let (mut names, mut one, mut other) = (Names::default(), device(1), device(2));
        names.give(&mut one, "laptop");
        names.give(&mut other, "phone");
        let mut given = names.given().clone();
        let swapped = [(one.key.clone(), given[&other.key].clone()), (other.key.clone(), given[&one.key].clone())];
        let list = list(vec![one.clone(), other.clone(), device(3)]);
        let opened = Names::opened(&list, swapped.into());
        assert!(opened.given().is_empty() && opened.lacks_some(), "the server has swapped them");

        // Without a good name an entry of the next list has none.
        given.remove(&other.key);
        let mut names = Names::opened(&list, given);
        assert!(!names.are_all_of(&list) && names.get(&one.key) == Some("laptop"));
        // The name that is kept back could be the one that a new device wants.
        let mut new = device(4);
        names.give(&mut new, "phone");
        assert_eq!((new.name.clone(), names.rename(&mut new, "tablet")), (None, Err(NameError::Unknown)));
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
        assert!(Names::opened(&list(vec![one, other]), given.collect()).given().is_empty());
    }
}
