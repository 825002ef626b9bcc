//! The user's machines, as texts and documents name them.

use std::ops::Deref;
use std::path::PathBuf;

use ensemble_account::Account;
use ensemble_types::ids::MachineId;

use crate::failure::Result;
use crate::when;

pub(crate) use ensemble_account::machines::{Card, Known, Runner, runner};

/// All machines of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machines {
    known: ensemble_account::machines::Machines,
    /// The configuration of the runner of this machine.
    runner_file: Option<PathBuf>,
}

impl Deref for Machines {
    type Target = ensemble_account::machines::Machines;

    fn deref(&self) -> &Self::Target {
        &self.known
    }
}

impl ensemble_screen::lines::Machines for Machines {
    fn called(&self, id: &MachineId) -> String {
        self.known.called(id)
    }

    fn runner_file(&self, id: Option<&MachineId>) -> String {
        self.runner_file(id)
    }

    fn explain(&self, text: &str) -> String {
        self.explain(text)
    }
}

impl Machines {
    pub(crate) async fn load(me: &Account) -> Result<Self> {
        Ok(Self { known: me.machines().await?, runner_file: Some(me.home.path().join("runner.yaml")) })
    }

    /// The same for views that are useful without names.
    pub(crate) async fn if_available(me: &Account) -> Self {
        Self::load(me).await.unwrap_or_default()
    }

    pub(crate) fn all(&self) -> &[Known] {
        &self.known.all
    }

    /// The machine with this name, id or ref.
    pub(crate) fn find(&self, named: &str) -> Result<&MachineId> {
        Ok(self.known.find(named)?)
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

    /// A text of the server with names in place of the ids of machines, and times of this place.
    pub(crate) fn explain(&self, text: &str) -> String {
        self.known.explain(text, when::clock)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ensemble_account::machines::Name;
    use ensemble_types::machines::Machine;
    use ensemble_types::refs::Ref;

    use ensemble_types::time::Timestamp;
    use serde_json::Value;

    use super::*;

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
            state: None,
            card: Some(Card { host: format!("{name} as it says"), ..Card::default() }),
        };
        let given = |(id, name): &(&str, &str)| (id.parse().unwrap(), Name::Given((*name).to_owned()));
        let known = ensemble_account::machines::Machines {
            all: named.iter().map(known).collect(),
            here: named.first().map(|(id, _)| id.parse().unwrap()),
            listed: named.iter().map(given).collect(),
        };
        Machines { known, runner_file: Some("/me/runner.yaml".into()) }
    }

    impl Machines {
        /// What a machine's heartbeat says.
        pub(crate) fn with_activity(mut self, id: &str, activity: Option<Value>) -> Self {
            let known = self.known.all.iter_mut().find(|known| known.machine.id.as_str() == id).unwrap();
            known.machine.activity = activity.map(|activity| serde_json::from_value(activity).unwrap());
            self
        }

        pub(crate) fn without(mut self, id: &str) -> Self {
            self.known.all.retain(|known| known.machine.id.as_str() != id);
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
        let file = machines.runner_file(Some(&"m-12".parse().unwrap()));
        assert!(file.starts_with("runner.yaml on laptop (m1200000)"), "{file}");
        assert_eq!(machines.runner_file(Some(&"m-1".parse().unwrap())), "/me/runner.yaml");
        let at = crate::context::now().plus(std::time::Duration::from_secs(7_230));
        let limit = machines.explain(&format!("claude's limit on m-1 is reached; continues at {at}."));
        let (begin, end) = limit.split_once(" at ").unwrap();
        assert_eq!(begin, "claude's limit on desk (m1000000) is reached; continues");
        assert!(end.ends_with(" (in 2 h).") && end.contains(':') && !end.contains('Z'), "{limit}");
        let named = machines.with_names(serde_json::json!({"machineId": "m-1", "tasks": [{"machineId": null}]}));
        assert_eq!(named["machineName"], "desk");
        assert_eq!(named["tasks"][0]["machineName"], Value::Null);
    }
}
