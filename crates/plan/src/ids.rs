//! The ids of a run and its tasks. They are chosen here and signed, so that a server cannot give a task the id of another one.

use std::collections::HashMap;

use ensemble_types::ids::{RunId, TaskId};
use ensemble_types::signatures::SignedBase;
use ensemble_types::template::Template;

use super::Step;

/// What the tasks of a run know of it and of each other.
pub(super) struct Ids {
    pub(super) run: RunId,
    pub(super) title: Option<String>,
    /// In the order of the tasks.
    pub(super) tasks: Vec<TaskId>,
    keyed: HashMap<String, TaskId>,
}

impl Ids {
    pub(super) fn new(title: Option<&str>, steps: &[Step]) -> Self {
        let tasks: Vec<TaskId> = steps.iter().map(|_| TaskId::generate()).collect();
        let keyed = steps.iter().zip(&tasks).filter_map(|(step, id)| Some((step.key.as_ref()?.to_string(), *id)));
        Self { run: RunId::generate(), title: title.map(str::to_owned), keyed: keyed.collect(), tasks }
    }

    /// The tasks whose outputs a prompt takes, each once, as it names them.
    pub(super) fn outputs(&self, prompt: &str) -> Vec<TaskId> {
        let mut found = Vec::new();
        for id in Template::parse(prompt).keys().filter_map(|key| self.keyed.get(key)) {
            if !found.contains(id) {
                found.push(*id);
            }
        }
        found
    }

    /// What a worktree begins with.
    pub(super) fn base(&self, named: &str) -> SignedBase {
        match self.keyed.get(named) {
            Some(task) => SignedBase::Task(*task),
            None => SignedBase::Ref(named.to_owned()),
        }
    }
}
