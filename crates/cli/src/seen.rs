//! What this computer has shown of the changes of tasks. An order to apply or to discard them names it, so that a machine does nothing with
//! changes that its owner has not seen.

use std::collections::BTreeMap;

use ensemble_types::ids::TaskId;
use ensemble_types::runs::{ChangesState, Task, TaskChanges};
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

/// What an order can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The digest of the diff, which was shown whole.
    Diff(String),
    /// That of the list of files.
    List(String),
}

impl Seen {
    /// What an order names: the diff where that was shown, and else the list of files. `None`: both have changed since.
    pub(crate) fn of(&self, changes: &TaskChanges) -> Option<Shown> {
        let list = changes.list_digest();
        // A diff that is not whole is not the one that the machine has sent.
        let diff = self.diff.clone().filter(|_| changes.has_whole_diff());
        (list == self.list).then(|| diff.map_or(Shown::List(list), Shown::Diff))
    }
}

/// Those with a worktree: of others there is nothing to order.
fn with_worktree(task: &Task) -> Option<(&Task, &TaskChanges)> {
    task.changes.as_ref().filter(|changes| changes.state != ChangesState::None).map(|changes| (task, changes))
}

fn remember_list(all: &mut BTreeMap<TaskId, Seen>, task: &Task, changes: &TaskChanges) {
    let list = changes.list_digest();
    let diff = all.remove(&task.id).filter(|seen| seen.list == list).and_then(|seen| seen.diff);
    all.insert(task.id, Seen { list, diff, at: now() });
}

impl Context {
    /// What was shown of the changes of a task.
    pub(crate) fn seen(&self, task: &Task) -> Result<Option<Seen>> {
        let mut all: BTreeMap<TaskId, Seen> = self.home.read_json(FILE)?.unwrap_or_default();
        Ok(all.remove(&task.id))
    }

    /// Remembers that the list of files of a task was shown, all of it. A diff of the same files was shown before.
    pub(crate) fn saw_list(&self, task: &Task) -> Result<()> {
        let Some((_, changes)) = with_worktree(task) else { return Ok(()) };
        self.saw(|all| remember_list(all, task, changes))
    }

    /// Remembers that the diff of a task was shown.
    pub(crate) fn saw_diff(&self, task: &Task, diff: &[u8]) -> Result<()> {
        let Some((_, changes)) = with_worktree(task) else { return Ok(()) };
        let seen = Seen { list: changes.list_digest(), diff: Some(digest(diff)), at: now() };
        self.saw(|all| {
            all.insert(task.id, seen);
        })
    }

    fn saw(&self, change: impl FnOnce(&mut BTreeMap<TaskId, Seen>)) -> Result<()> {
        self.home.update_json(FILE, |all| {
            change(all);
            while all.len() > MOST
                && let Some(oldest) = all.iter().min_by_key(|(_, seen)| seen.at).map(|(task, _)| *task)
            {
                all.remove(&oldest);
            }
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::changed;
    use crate::changes::tests::task;

    fn seen(changes: &TaskChanges, diff: Option<&str>) -> Seen {
        Seen { list: changes.list_digest(), diff: diff.map(str::to_owned), at: now() }
    }

    #[test]
    fn an_order_names_the_diff_that_was_shown_also_where_the_list_is_cut() {
        let mut changes = changed(ChangesState::Kept);
        changes.file_count = 300;
        assert!(!changes.has_whole_list() && changes.has_whole_diff());
        assert_eq!(seen(&changes, Some("d")).of(&changes), Some(Shown::Diff("d".to_owned())));
        let list = Some(Shown::List(changes.list_digest()));
        assert_eq!(seen(&changes, None).of(&changes), list);
        let before = seen(&changes, Some("d"));
        changes.diff_truncated = true;
        assert_eq!(before.of(&changes), list, "a part of the diff is missing");
        changes.added += 1;
        assert_eq!(before.of(&changes), None, "it has changed since");
    }

    #[test]
    fn a_list_is_remembered_for_its_task_and_keeps_the_diff_that_was_shown() {
        let (one, other) = (task("a"), task("b"));
        let mut changes = changed(ChangesState::Kept);
        let with_diff = seen(&changes, Some("d"));
        let mut all = BTreeMap::from([(one.id, with_diff.clone()), (other.id, with_diff.clone())]);
        remember_list(&mut all, &one, &changes);
        assert_eq!(all[&one.id].diff.as_deref(), Some("d"));
        changes.removed += 1;
        remember_list(&mut all, &one, &changes);
        assert_eq!((&all[&one.id].list, &all[&one.id].diff), (&changes.list_digest(), &None));
        assert_eq!(all[&other.id], with_diff, "of the other task nothing was shown");
    }
}
