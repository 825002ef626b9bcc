//! What a runner reports with its heartbeat, in the clear. The server could say something else.

use std::collections::BTreeSet;

use ensemble_types::ids::MachineId;
use ensemble_types::machines::Machine;
use ensemble_types::runs::Provider;
use serde::{Deserialize, Serialize};

use super::Machines;

/// The state that a runner reports with its heartbeat.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    pub capacity: u32,
    pub running: u32,
    pub draining: bool,
    pub providers: Vec<ProviderState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktrees: Option<Worktrees>,
}

/// The worktrees that a machine keeps until their owner discards them.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Worktrees {
    pub kept: u32,
    pub most: u32,
}

impl Worktrees {
    /// `28 of 32 worktrees`.
    pub fn words(self) -> String {
        format!("{} of {} worktrees", self.kept, self.most)
    }

    /// Whether tasks in worktrees will soon be refused.
    pub fn is_nearly_full(self) -> bool {
        self.kept.saturating_add(self.most / 8) >= self.most
    }
}

/// A provider on a machine.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderState {
    pub provider: String,
    pub offered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_in: Option<bool>,
}

#[derive(Deserialize)]
struct Activity {
    runner: Runner,
}

/// What the runner of a machine reports, while it is online.
pub fn runner(machine: &Machine) -> Option<Runner> {
    let activity = machine.activity.as_ref().filter(|_| machine.online)?;
    serde_json::from_str::<Activity>(activity.as_text()).ok().map(|activity| activity.runner)
}

impl Machines {
    /// What the runners of a machine, or of all machines, offer now.
    pub fn offered(&self, on: Option<&MachineId>) -> Vec<Provider> {
        let considered = self.all.iter().filter(|known| on.is_none_or(|id| known.machine.id == *id));
        let states = considered.filter_map(|known| runner(&known.machine)).flat_map(|runner| runner.providers);
        let offered = states.filter(|state| state.offered).filter_map(|state| state.provider.parse().ok());
        offered.collect::<BTreeSet<_>>().into_iter().collect()
    }
}
