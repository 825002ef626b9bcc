//! What this computer has shown of the changes of tasks. An order to apply or to discard them names it, so that a machine does nothing with
//! changes that its owner has not seen.

use std::collections::BTreeMap;

use ensemble_types::ids::TaskId;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};
use ensemble_types::signatures::digest;
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::context::{Context, now};
use crate::failure::Result;

const FILE: &str = "seen-changes.json";
/// Tasks that are remembered.
const MOST: usize = 500;

/// The digests of what was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    list: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    at: Timestamp,
}

impl Seen {
    /// What an order names: the diff where that was shown, and else the list of files. `None`: both have changed since.
    pub(crate) fn of(&self, changes: &TaskChanges) -> Option<String> {
        let list = changes.list_digest();
        // A diff that is not whole is not the one that the machine has sent.
        let diff = self.diff.clone().filter(|_| changes.is_whole());
        (list == self.list).then(|| diff.unwrap_or(list))
    }
}

/// Those with a worktree: of others there is nothing to order.
fn with_worktree(task: &Task) -> Option<(&Task, &TaskChanges)> {
    task.changes.as_ref().filter(|changes| changes.state != ChangesState::None).map(|changes| (task, changes))
}

impl Context {
    /// What was shown of the changes of a task.
    pub(crate) fn seen(&self, task: &Task) -> Result<Option<Seen>> {
        Ok(self.all_seen()?.remove(&task.id))
    }

    /// Remembers that the lists of files of a run were shown. A diff of the same files was shown as well.
    pub(crate) fn saw_lists(&self, run: &Run) -> Result<()> {
        let tasks: Vec<_> = run.tasks.iter().flatten().filter_map(with_worktree).collect();
        if tasks.is_empty() {
            return Ok(());
        }
        self.saw(|all| {
            for (task, changes) in tasks {
                let list = changes.list_digest();
                let diff = all.remove(&task.id).filter(|seen| seen.list == list).and_then(|seen| seen.diff);
                all.insert(task.id, Seen { list, diff, at: now() });
            }
        })
    }

    /// Remembers that the diff of a task was shown.
    pub(crate) fn saw_diff(&self, task: &Task, diff: &[u8]) -> Result<()> {
        let Some((_, changes)) = with_worktree(task) else { return Ok(()) };
        let seen = Seen { list: changes.list_digest(), diff: Some(digest(diff)), at: now() };
        self.saw(|all| {
            all.insert(task.id, seen);
        })
    }

    fn all_seen(&self) -> Result<BTreeMap<TaskId, Seen>> {
        Ok(self.home.read_json(FILE)?.unwrap_or_default())
    }

    fn saw(&self, change: impl FnOnce(&mut BTreeMap<TaskId, Seen>)) -> Result<()> {
        let _lock = self.home.lock("seen-changes.lock")?;
        let mut all = self.all_seen()?;
        change(&mut all);
        while all.len() > MOST
            && let Some(oldest) = all.iter().min_by_key(|(_, seen)| seen.at).map(|(task, _)| *task)
        {
            all.remove(&oldest);
        }
        self.home.write_json(FILE, &all)
    }
}
