//! The user's machines with their names. The server knows only ids, because names are encrypted.

mod opened;

use std::path::PathBuf;

use ensemble_types::devices::ListedDevice;
use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use ensemble_types::runs::Provider;
use ensemble_types::time::Timestamp;
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::{Context, Me};
use crate::failure::{Failure, Result};
use crate::styled::cut_middle;
use crate::when;

pub(crate) use self::opened::{opened, ring};

/// The decrypted metadata of a machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Card {
    #[serde(default)]
    pub(crate) host: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) arch: String,
    /// The public key of the device that has registered it, on the same computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

/// The state that a runner reports with its heartbeat.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Runner {
    pub(crate) capacity: u32,
    pub(crate) running: u32,
    pub(crate) draining: bool,
    pub(crate) providers: Vec<ProviderState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worktrees: Option<Worktrees>,
}

/// The worktrees that a machine keeps until their owner discards them.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Worktrees {
    pub(crate) kept: u32,
    pub(crate) most: u32,
}

impl Worktrees {
    /// `28 of 32 worktrees`.
    pub(crate) fn words(self) -> String {
        format!("{} of {} worktrees", self.kept, self.most)
    }

    /// Whether tasks in worktrees will soon be refused.
    pub(crate) fn is_nearly_full(self) -> bool {
        self.kept.saturating_add(self.most / 8) >= self.most
    }
}

/// A provider on a machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderState {
    pub(crate) provider: String,
    pub(crate) offered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signed_in: Option<bool>,
}

#[derive(Deserialize)]
struct Activity {
    runner: Runner,
}

/// A machine and its decrypted metadata, if it could be decrypted.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) machine: Machine,
    pub(crate) card: Option<Card>,
}

/// All machines of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    all: Vec<Known>,
    this: Option<MachineId>,
    /// What the devices are called that are on the computers of machines.
    devices: Vec<(String, MachineId)>,
    /// The configuration of the runner of this machine.
    runner_file: Option<PathBuf>,
}

impl Machines {
    pub(crate) async fn load(context: &Context, me: &Me) -> Result<Self> {
        let this = context.home.settings()?.machines.remove(me.client.origin());
        let (machines, names) = tokio::join!(me.client.machines().try_collect::<Vec<Machine>>(), me.names(context));
        let all = opened(me, machines?).await?;
        // Without them machines have their own names.
        let (names, own) = (names.unwrap_or_default(), me.own());
        let named = |device: &ListedDevice| Some((names.get(&device.key)?.to_owned(), machine_of(device, &all)?));
        let devices = own.list.body().devices.iter().filter_map(named).collect();
        let runner_file = Some(context.home.path().join("runner.yaml"));
        Ok(Self { all, this, devices, runner_file })
    }

    /// The same for views that are useful without names.
    pub(crate) async fn if_available(context: &Context, me: &Me) -> Self {
        Self::load(context, me).await.unwrap_or_default()
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

    /// The machine with this id or ref, or the only one with this name, or else the one on whose computer a device has it.
    pub(crate) fn find(&self, named: &str) -> Result<&MachineId> {
        let by_id = self.all.iter().find(|known| known.machine.id.as_str() == named);
        let by_ref = || self.all.iter().find(|known| known.machine.reference.as_str() == named);
        if let Some(known) = by_id.or_else(by_ref) {
            return Ok(&known.machine.id);
        }
        let host = |known: &&Known| known.card.as_ref().is_some_and(|card| card.host.eq_ignore_ascii_case(named));
        let mut found: Vec<_> = self.all.iter().filter(host).collect();
        if found.is_empty() {
            let is_meant = |known: &&Known| {
                let of_it =
                    |(name, id): &(String, MachineId)| *id == known.machine.id && name.eq_ignore_ascii_case(named);
                self.devices.iter().any(of_it)
            };
            found = self.all.iter().filter(is_meant).collect();
        }
        match found.as_slice() {
            [only] => Ok(&only.machine.id),
            [] if self.all.is_empty() => Err(Failure::message(format!(
                "You have no machine {named}, and no other one. `ensemble runner` registers the machine on which it runs."
            ))),
            [] => Err(Failure::message(format!(
                "You have no machine {named}. You have: {}.",
                self.names(self.all.iter())
            ))),
            several => Err(Failure::message(format!(
                "{} machines have the name {named}. Give the ref of one: {}.",
                several.len(),
                self.names(several.iter().copied())
            ))),
        }
    }

    fn names<'k>(&self, known: impl Iterator<Item = &'k Known>) -> String {
        known.take(10).map(|known| self.called(&known.machine.id)).collect::<Vec<_>>().join(", ")
    }

    /// The decrypted name of a machine.
    pub(crate) fn name(&self, id: &MachineId) -> Option<&str> {
        let host = &self.get(id)?.card.as_ref()?.host;
        (!host.is_empty()).then_some(host.as_str())
    }

    /// The name of a machine, with its ref where another machine has the same name.
    pub(crate) fn told_apart(&self, id: &MachineId) -> Option<String> {
        let name = self.name(id)?;
        let is_shared =
            self.all.iter().any(|other| other.machine.id != *id && self.name(&other.machine.id) == Some(name));
        Some(if is_shared { self.called(id) } else { name.to_owned() })
    }

    /// How people call a machine: its name and its ref. One that was deleted: its id, shortened if it is long.
    pub(crate) fn called(&self, id: &MachineId) -> String {
        let short = match self.get(id) {
            Some(known) => known.machine.reference.to_string(),
            None => cut_middle(id.as_str(), LONGEST_ID),
        };
        match self.name(id) {
            Some(name) if name != id.as_str() => format!("{name} ({short})"),
            _ => short,
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

/// The machine that a device is, or the one that it has registered on its own computer.
fn machine_of(device: &ListedDevice, all: &[Known]) -> Option<MachineId> {
    let has_registered = |known: &&Known| known.card.as_ref().and_then(|card| card.by.as_ref()) == Some(&device.key);
    let registered = || all.iter().find(has_registered).map(|known| known.machine.id.clone());
    device.machine_id.clone().or_else(registered)
}

/// A time at the beginning of a text, and what follows.
fn time(text: &str) -> Option<(Timestamp, &str)> {
    const LENGTH: usize = "2026-11-23T14:05:00.000Z".len();
    let (time, after) = text.split_at_checked(LENGTH)?;
    Some((time.parse().ok()?, after))
}

/// The longest id that is shown whole beside a name.
const LONGEST_ID: usize = 24;

/// What the runner of a machine reports, while it is online.
pub(crate) fn runner(machine: &Machine) -> Option<Runner> {
    let activity = machine.activity.as_ref().filter(|_| machine.online)?;
    serde_json::from_str::<Activity>(activity.as_text()).ok().map(|activity| activity.runner)
}

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
        let known = |(id, host): &(&str, &str)| Known {
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
            card: Some(Card { host: (*host).to_owned(), ..Card::default() }),
        };
        Machines {
            all: named.iter().map(known).collect(),
            this: named.first().map(|(id, _)| id.parse().unwrap()),
            devices: vec![("Box".to_owned(), "b".parse().unwrap()), ("laptop".to_owned(), "c".parse().unwrap())],
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
    fn a_machine_is_found_by_id_or_by_a_name_that_only_it_has() {
        let machines = machines(&[("a", "desk"), ("b", "laptop"), ("c", "desk")]);
        assert_eq!(machines.find("LAPTOP").unwrap().as_str(), "b");
        assert_eq!(machines.find("c").unwrap().as_str(), "c");
        assert_eq!(machines.find("box").unwrap().as_str(), "b", "the name of its device");
        assert_eq!(machines.find("c0000000").unwrap().as_str(), "c");
        let several = machines.find("desk").unwrap_err().to_string();
        assert!(several.contains("desk (a0000000), desk (c0000000)"), "{several}");
        let apart = |id: &str| machines.told_apart(&id.parse().unwrap()).unwrap();
        assert_eq!([apart("a"), apart("b"), apart("c")], ["desk (a0000000)", "laptop", "desk (c0000000)"]);
        assert!(machines.find("nowhere").unwrap_err().to_string().contains("laptop (b0000000)"));
    }
}
