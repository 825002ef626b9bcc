//! What a runner reports with its heartbeat, in the clear. The server could say something else.

use ensemble_types::machines::Machine;
use serde::{Deserialize, Serialize};

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

/// What the runner of a machine reports, while it is online.
pub(crate) fn runner(machine: &Machine) -> Option<Runner> {
    let activity = machine.activity.as_ref().filter(|_| machine.online)?;
    serde_json::from_str::<Activity>(activity.as_text()).ok().map(|activity| activity.runner)
}
