//! The user's machines. Their names come from the device list, and not from the server or a machine.

mod reported;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ensemble_account::Account;
use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use ensemble_types::runs::Provider;
use ensemble_types::time::Timestamp;
use futures_util::TryStreamExt;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::styled::cut_middle;
use crate::when;

pub(crate) use self::reported::{Runner, runner};
pub(crate) use ensemble_account::machines::{Card, Known, opened};

/// What the device list says of a machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Given(String),
    /// None was signed yet.
    None,
    /// The name that the server gives was not signed.
    Other,
}

/// All machines of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    all: Vec<Known>,
    this: Option<MachineId>,
    /// The machines in the device list.
    listed: BTreeMap<MachineId, Name>,
    /// The configuration of the runner of this machine.
    runner_file: Option<PathBuf>,
}

impl Machines {
    pub(crate) async fn load(me: &Account) -> Result<Self> {
        let this = me.home.settings()?.machines.remove(me.client.origin());
        let machines = async { Ok(me.client.machines().try_collect::<Vec<Machine>>().await?) };
        let (machines, names) = tokio::try_join!(machines, me.names())?;
        let all = opened(me, machines).await?;
        let name = |device: &ListedDevice| match (names.get(&device.key), &device.name) {
            (Some(name), _) => Name::Given(name.to_owned()),
            (None, None) => Name::None,
            (None, Some(_)) => Name::Other,
        };
        let of_machine = |device: &ListedDevice| Some((device.machine_id.clone()?, name(device)));
        let listed = me.own().list.body().devices.iter().filter_map(of_machine).collect();
        let runner_file = Some(me.home.path().join("runner.yaml"));
        Ok(Self { all, this, listed, runner_file })
    }

    /// The same for views that are useful without names.
    pub(crate) async fn if_available(me: &Account) -> Self {
        Self::load(me).await.unwrap_or_default()
    }

    pub(crate) fn all(&self) -> &[Known] {
        &self.all
    }

    pub(crate) fn get(&self, id: &MachineId) -> Option<&Known> {
        self.all.iter().find(|known| known.machine.id == *id)
    }

    /// This machine, if it is registered at this server.
    pub(crate) fn this(&self) -> Option<&MachineId> {
        self.this.as_ref().filter(|this| self.get(this).is_some())
    }

    /// This machine, if it was registered at this server and the server does not know it any more.
    pub(crate) fn forgotten(&self) -> Option<&MachineId> {
        self.this.as_ref().filter(|this| self.get(this).is_none())
    }

    /// Where the configuration of a machine's runner is, for people.
    pub(crate) fn runner_file(&self, id: Option<&MachineId>) -> String {
        let is_this = id.is_some() && id == self.this();
        match (self.runner_file.as_ref().filter(|_| is_this), id) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(id)) => {
                format!("runner.yaml on {}, in the directory that `ensemble config` shows there", self.called(id))
            }
            (None, None) => "runner.yaml of its machine".to_owned(),
        }
    }

    /// The machine with this name, else with this id, else with this ref. A server can make up machines with any id, but cannot name one.
    pub(crate) fn find(&self, named: &str) -> Result<&MachineId> {
        let name = named.to_lowercase();
        let all = || self.all.iter().map(|known| &known.machine);
        // Before an id: a server that hides a machine could show another one whose id is its name.
        let listed = self.listed.keys().find(|id| self.name(id).is_some_and(|given| given.to_lowercase() == name));
        if let Some(listed) = listed {
            return all().map(|machine| &machine.id).find(|id| *id == listed).ok_or_else(|| {
                Failure::message(format!(
                    "The server does not show your machine {named}. Do not trust it if that stays so."
                ))
            });
        }
        let by_id = all().find(|machine| machine.id.as_str() == named);
        match by_id.or_else(|| all().find(|machine| machine.reference.as_str() == named)) {
            Some(machine) => Ok(&machine.id),
            None if self.all.is_empty() => Err(Failure::message(format!(
                "You have no machine {named}, and no other one. `ensemble runner` registers the machine on which it runs."
            ))),
            None => {
                let called: Vec<_> = all().take(10).map(|machine| self.called(&machine.id)).collect();
                Err(Failure::message(format!("You have no machine {named}. You have: {}.", called.join(", "))))
            }
        }
    }

    /// The name that the device list gives a machine. No other machine has it.
    pub(crate) fn name(&self, id: &MachineId) -> Option<&str> {
        match self.listed.get(id)? {
            Name::Given(name) => Some(name),
            Name::None | Name::Other => None,
        }
    }

    /// Whether the device list has a machine.
    pub(crate) fn is_listed(&self, id: &MachineId) -> bool {
        self.listed.contains_key(id)
    }

    /// The machines in the device list and all others that the server knows.
    pub(crate) fn ids(&self) -> BTreeSet<&MachineId> {
        self.listed.keys().chain(self.all.iter().map(|known| &known.machine.id)).collect()
    }

    /// Why a machine has no name. `None` if it has one, or was never named.
    pub(crate) fn without_name(&self, id: &MachineId) -> Option<&'static str> {
        match self.listed.get(id) {
            Some(Name::Given(_) | Name::None) => None,
            Some(Name::Other) => Some("the server gives another name"),
            None => Some("not in your list"),
        }
    }

    /// How a machine is shown: its name and its ref, or its ref and why it has no name. A deleted one is shown with its shortened id.
    pub(crate) fn called(&self, id: &MachineId) -> String {
        let Some(known) = self.get(id) else {
            let short = cut_middle(id.as_str(), LONGEST_ID);
            return self.name(id).map_or_else(|| short.clone(), |name| format!("{name} ({short})"));
        };
        let reference = &known.machine.reference;
        match (self.name(id), self.without_name(id)) {
            (Some(name), _) => format!("{name} ({reference})"),
            (None, Some(why)) => format!("{reference} ({why})"),
            (None, None) => reference.to_string(),
        }
    }

    /// A text of the server with names in place of the ids of machines, and times of this place.
    pub(crate) fn explain(&self, text: &str) -> String {
        let is_of_id = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(begin) = rest.find(is_of_id) {
            let (before, word) = rest.split_at(begin);
            if let Some((at, after)) = time(word) {
                out.push_str(before);
                out.push_str(&when::clock(at));
                rest = after;
                continue;
            }
            let (word, after) = word.split_at(word.find(|c| !is_of_id(c)).unwrap_or(word.len()));
            out.push_str(before);
            match self.all.iter().find(|known| known.machine.id.as_str() == word) {
                Some(known) => out.push_str(&self.called(&known.machine.id)),
                None => out.push_str(word),
            }
            rest = after;
        }
        out + rest
    }

    /// Adds `machineName` wherever a JSON document has `machineId`.
    pub(crate) fn with_names(&self, mut value: Value) -> Value {
        self.add_names(&mut value);
        value
    }

    fn add_names(&self, value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(|value| self.add_names(value)),
            Value::Object(members) => {
                members.values_mut().for_each(|value| self.add_names(value));
                if let Some(id) = members.get("machineId") {
                    let name = id.as_str().and_then(|id| self.name(&id.parse().ok()?)).map(str::to_owned);
                    members.insert("machineName".to_owned(), name.into());
                }
            }
            _ => {}
        }
    }

    /// What the runners of a machine, or of all machines, offer now.
    pub(crate) fn offered(&self, on: Option<&MachineId>) -> Vec<Provider> {
        let considered = self.all.iter().filter(|known| on.is_none_or(|id| known.machine.id == *id));
        let runners: Vec<Runner> = considered.filter_map(|known| runner(&known.machine)).collect();
        let is_offered = |provider: &Provider| {
            let mut states = runners.iter().flat_map(|runner| &runner.providers);
            states.any(|state| state.offered && state.provider == provider.as_str())
        };
        Provider::ALL.into_iter().filter(is_offered).collect()
    }
}

/// A time at the beginning of a text, and what follows.
fn time(text: &str) -> Option<(Timestamp, &str)> {
    const LENGTH: usize = "2026-11-23T14:05:00.000Z".len();
    let (time, after) = text.split_at_checked(LENGTH)?;
    Some((time.parse().ok()?, after))
}

/// The longest id that is shown whole beside a name.
const LONGEST_ID: usize = 24;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ensemble_types::refs::Ref;

    /// The characters of the id that a ref may have, and zeros.
    fn reference(id: &str) -> Ref {
        let fits: String = id.chars().filter(|c| !"-ilou".contains(*c)).take(8).collect();
        format!("{fits:0<8}").parse().unwrap()
    }

    /// Machines with these ids and names. The first one is this machine.
    pub(crate) fn machines(named: &[(&str, &str)]) -> Machines {
        let known = |(id, name): &(&str, &str)| Known {
            machine: Machine {
                id: id.parse().unwrap(),
                reference: reference(id),
                metadata: String::new(),
                metadata_version: 1,
                encryption_key: String::new(),
                content_epoch: None,
                daemon_state: None,
                daemon_state_version: 0,
                activity: None,
                seen: None,
                online: true,
                last_active_at: None,
                created_at: Timestamp::from_micros(0),
                updated_at: Timestamp::from_micros(0),
            },
            card: Some(Card { host: format!("{name} as it says"), ..Card::default() }),
        };
        let given = |(id, name): &(&str, &str)| (id.parse().unwrap(), Name::Given((*name).to_owned()));
        Machines {
            all: named.iter().map(known).collect(),
            this: named.first().map(|(id, _)| id.parse().unwrap()),
            listed: named.iter().map(given).collect(),
            runner_file: Some("/me/runner.yaml".into()),
        }
    }

    impl Machines {
        /// What a machine's heartbeat says.
        pub(crate) fn with_activity(mut self, id: &str, activity: Option<Value>) -> Self {
            let known = self.all.iter_mut().find(|known| known.machine.id.as_str() == id).unwrap();
            known.machine.activity = activity.map(|activity| serde_json::from_value(activity).unwrap());
            self
        }

        pub(crate) fn without(mut self, id: &str) -> Self {
            self.all.retain(|known| known.machine.id.as_str() != id);
            self
        }
    }

    #[test]
    fn ids_in_texts_become_names() {
        let machines = machines(&[("m-1", "desk"), ("m-12", "laptop")]);
        assert_eq!(
            machines.explain("m-12 is full; m-1, pinned. m-123 is not known."),
            "laptop (m1200000) is full; desk (m1000000), pinned. m-123 is not known."
        );
        let at = crate::context::now().plus(std::time::Duration::from_secs(7_230));
        let limit = machines.explain(&format!("claude's limit on m-1 is reached; goes on at {at}."));
        let (begin, end) = limit.split_once(" at ").unwrap();
        assert_eq!(begin, "claude's limit on desk (m1000000) is reached; goes on");
        assert!(end.ends_with(" (in 2 h).") && end.contains(':') && !end.contains('Z'), "{limit}");
        let named = machines.with_names(serde_json::json!({"machineId": "m-1", "tasks": [{"machineId": null}]}));
        assert_eq!(named["machineName"], "desk");
        assert_eq!(named["tasks"][0]["machineName"], Value::Null);
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
        let called = ["a", "c", "d", "laptop", "gone"].map(|name| machines.called(&id(name)));
        let expected = [
            "desk (a0000000)",
            "c0000000 (the server gives another name)",
            "d0000000",
            "aptp0000 (not in your list)",
            "gone",
        ];
        assert_eq!(called, expected);
        for not in ["box", "fake", "desk as it says", ""] {
            let said = machines.find(not).unwrap_err().to_string();
            assert!(said.contains("laptop (b0000000)"), "{said}");
        }
        let hidden = machines.without("b");
        assert!(hidden.find("laptop").unwrap_err().to_string().contains("does not show your machine laptop"));
        assert_eq!(hidden.find("aptp0000").unwrap().as_str(), "laptop", "by its ref");
    }
}
