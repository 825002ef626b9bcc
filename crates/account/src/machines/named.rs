//! Which machines there are, and how they are called. Their names come from the device list, and not from the server or a machine.

use std::collections::{BTreeMap, BTreeSet};

use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use futures_util::TryStreamExt;

use super::{Known, opened};
use crate::account::Account;
use crate::error::{Error, Result};

/// What the device list says of a machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    Given(String),
    /// None was signed yet.
    None,
    /// The name that the server gives was not signed.
    Other,
}

/// All machines of the user.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    pub all: Vec<Known>,
    /// This computer, if it is or was a machine at this server.
    pub here: Option<MachineId>,
    /// The machines in the device list.
    pub listed: BTreeMap<MachineId, Name>,
}

impl Account {
    /// The machines of the account.
    pub async fn machines(&self) -> Result<Machines> {
        let here = self.this_machine()?;
        let machines = async { Ok(self.client.machines().try_collect::<Vec<Machine>>().await?) };
        let (machines, names) = tokio::try_join!(machines, self.names())?;
        let all = opened(self, machines).await?;
        let name = |device: &ListedDevice| match (names.get(&device.key), &device.name) {
            (Some(name), _) => Name::Given(name.to_owned()),
            (None, None) => Name::None,
            (None, Some(_)) => Name::Other,
        };
        let of_machine = |device: &ListedDevice| Some((device.machine_id.clone()?, name(device)));
        let listed = self.own().list.body().devices.iter().filter_map(of_machine).collect();
        Ok(Machines { all, here, listed })
    }
}

impl Machines {
    pub fn get(&self, id: &MachineId) -> Option<&Known> {
        self.all.iter().find(|known| known.machine.id == *id)
    }

    /// This machine, if it is registered at this server.
    pub fn this(&self) -> Option<&MachineId> {
        self.here.as_ref().filter(|here| self.get(here).is_some())
    }

    /// This machine, if it was registered at this server and the server does not know it any more.
    pub fn forgotten(&self) -> Option<&MachineId> {
        self.here.as_ref().filter(|here| self.get(here).is_none())
    }

    /// The machine with this name, else with this id, else with this ref. A server can make up machines with any id, but cannot name one.
    pub fn find(&self, named: &str) -> Result<&MachineId> {
        let name = named.to_lowercase();
        let all = || self.all.iter().map(|known| &known.machine);
        // Before an id: a server that hides a machine could show another one whose id is its name.
        let listed = self.listed.keys().find(|id| self.name(id).is_some_and(|given| given.to_lowercase() == name));
        if let Some(listed) = listed {
            let shown = all().map(|machine| &machine.id).find(|id| *id == listed);
            return shown.ok_or_else(|| Error::MachineHidden(named.to_owned()));
        }
        let by_id = all().find(|machine| machine.id.as_str() == named);
        match by_id.or_else(|| all().find(|machine| machine.reference.as_str() == named)) {
            Some(machine) => Ok(&machine.id),
            None if self.all.is_empty() => Err(Error::NoMachines(named.to_owned())),
            None => {
                let called: Vec<_> = all().take(10).map(|machine| self.called(&machine.id)).collect();
                Err(Error::NoMachine { named: named.to_owned(), have: called.join(", ") })
            }
        }
    }

    /// The name that the device list gives a machine. No other machine has it.
    pub fn name(&self, id: &MachineId) -> Option<&str> {
        match self.listed.get(id)? {
            Name::Given(name) => Some(name),
            Name::None | Name::Other => None,
        }
    }

    /// Whether the device list has a machine.
    pub fn is_listed(&self, id: &MachineId) -> bool {
        self.listed.contains_key(id)
    }

    /// The machines in the device list and all others that the server knows.
    pub fn ids(&self) -> BTreeSet<&MachineId> {
        self.listed.keys().chain(self.all.iter().map(|known| &known.machine.id)).collect()
    }

    /// Why a machine has no name. `None` if it has one, or was never named.
    pub fn without_name(&self, id: &MachineId) -> Option<&'static str> {
        match self.listed.get(id) {
            Some(Name::Given(_) | Name::None) => None,
            Some(Name::Other) => Some("the server gives another name"),
            None => Some("not in your list"),
        }
    }

    /// How a machine is shown: its name and its ref, or its ref and why it has no name. A deleted one is shown with its shortened id.
    pub fn called(&self, id: &MachineId) -> String {
        let Some(known) = self.get(id) else {
            let short = shortened(id);
            return self.name(id).map_or_else(|| short.clone(), |name| format!("{name} ({short})"));
        };
        let reference = &known.machine.reference;
        match (self.name(id), self.without_name(id)) {
            (Some(name), _) => format!("{name} ({reference})"),
            (None, Some(why)) => format!("{reference} ({why})"),
            (None, None) => reference.to_string(),
        }
    }
}

/// The beginning and the end of an id of more than 24 characters: the ends of two differ.
fn shortened(id: &MachineId) -> String {
    let id = id.as_str();
    match (id.len() > 24, id.get(..12), id.get(id.len().saturating_sub(11)..)) {
        (true, Some(begin), Some(end)) => format!("{begin}…{end}"),
        _ => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::refs::Ref;
    use serde_json::json;

    use super::*;
    use crate::machines::Card;

    /// The characters of the id that a ref may have, and zeros.
    fn reference(id: &str) -> Ref {
        let fits: String = id.chars().filter(|c| !"-ilou".contains(*c)).take(8).collect();
        format!("{fits:0<8}").parse().unwrap()
    }

    /// Machines with these ids and names.
    fn machines(named: &[(&str, &str)]) -> Machines {
        let known = |(id, name): &(&str, &str)| {
            let machine = json!({
                "id": id, "ref": reference(id), "metadata": "", "metadataVersion": 1, "encryptionKey": "", "daemonState": null,
                "daemonStateVersion": 0, "online": true, "lastActiveAt": null, "createdAt": "2026-01-01T00:00:00.000Z",
                "updatedAt": "2026-01-01T00:00:00.000Z",
            });
            let card = Some(Card { host: format!("{name} as it says"), ..Card::default() });
            Known { machine: serde_json::from_value(machine).unwrap(), card, state: None }
        };
        let given = |(id, name): &(&str, &str)| (id.parse().unwrap(), Name::Given((*name).to_owned()));
        Machines { all: named.iter().map(known).collect(), here: None, listed: named.iter().map(given).collect() }
    }

    #[test]
    fn a_machine_is_found_by_the_name_that_the_list_gives_it() {
        let mut machines = machines(&[("a", "desk"), ("b", "laptop"), ("c", "box"), ("laptop", "fake"), ("d", "")]);
        let id = |id: &str| id.parse::<MachineId>().unwrap();
        machines.listed.remove(&id("laptop"));
        machines.listed.insert(id("c"), Name::Other);
        machines.listed.insert(id("d"), Name::None);
        assert_eq!(
            machines.find("LAPTOP").unwrap().as_str(),
            "b",
            "and not the one with that id, which the list lacks"
        );
        assert_eq!(machines.find("c").unwrap().as_str(), "c");
        assert_eq!(machines.find("c0000000").unwrap().as_str(), "c");
        let long = "0193a1b2-0000-7000-8000-000000000001";
        let called = ["a", "c", "d", "laptop", "gone", long].map(|name| machines.called(&id(name)));
        let expected = [
            "desk (a0000000)",
            "c0000000 (the server gives another name)",
            "d0000000",
            "aptp0000 (not in your list)",
            "gone",
            "0193a1b2-000…00000000001",
        ];
        assert_eq!(called, expected);
        for not in ["box", "fake", "desk as it says", ""] {
            let said = machines.find(not).unwrap_err().to_string();
            assert!(said.contains("laptop (b0000000)"), "{said}");
        }
        machines.all.retain(|known| known.machine.id.as_str() != "b");
        assert!(machines.find("laptop").unwrap_err().to_string().contains("does not show your machine laptop"));
        assert_eq!(machines.find("aptp0000").unwrap().as_str(), "laptop", "by its ref");
    }
}
