//! What tasks changed: what this computer has shown of it, and orders to apply or to discard it. An order names what was shown, so that a
//! machine does nothing with changes that its owner has not seen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ensemble_types::ids::TaskId;
use ensemble_types::runs::{ChangesState, Run, Task, TaskChanges};
use ensemble_types::signatures::{ChangesOrder, digest};
use ensemble_types::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::tasks::{TaskAction, Wanted};

const FILE: &str = "seen-changes.json";
/// Tasks that are remembered.
const MOST: usize = 500;
/// How long one call waits for the machine, and how long the calls do in all.
const ONE_WAIT: Duration = Duration::from_secs(20);
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);

/// The digests of what was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    list: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    at: Timestamp,
}

/// What an order can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The digest of the diff, which was shown whole.
    Diff(String),
    /// That of the list of files.
    List(String),
}

impl Seen {
    /// What an order names: the diff where that was shown, and else the list of files. `None`: both have changed since.
    pub fn of(&self, changes: &TaskChanges) -> Option<Shown> {
        let list = changes.list_digest();
        // A diff that is not whole is not the one that the machine has sent.
        let diff = self.diff.clone().filter(|_| changes.has_whole_diff());
        (list == self.list).then(|| diff.map_or(Shown::List(list), Shown::Diff))
    }
}

/// Those with a worktree: of others there is nothing to order.
fn in_worktree(task: &Task) -> Option<&TaskChanges> {
    task.changes.as_ref().filter(|changes| changes.state != ChangesState::None)
}

fn remember_list(all: &mut BTreeMap<TaskId, Seen>, task: &Task, changes: &TaskChanges, at: Timestamp) {
    let list = changes.list_digest();
    let diff = all.remove(&task.id).filter(|seen| seen.list == list).and_then(|seen| seen.diff);
    all.insert(task.id, Seen { list, diff, at });
}

impl Home {
    /// What was shown of the changes of a task.
    pub fn seen(&self, task: &Task) -> Result<Option<Seen>> {
        let mut all: BTreeMap<TaskId, Seen> = self.read_json(FILE)?.unwrap_or_default();
        Ok(all.remove(&task.id))
    }

    /// Remembers that the list of files of a task was shown, all of it. A diff of the same files was shown before.
    pub fn saw_list(&self, task: &Task, at: Timestamp) -> Result<()> {
        let Some(changes) = in_worktree(task) else { return Ok(()) };
        self.saw(|all| remember_list(all, task, changes, at))
    }

    /// Remembers that the diff of a task was shown.
    pub fn saw_diff(&self, task: &Task, diff: &[u8], at: Timestamp) -> Result<()> {
        let Some(changes) = in_worktree(task) else { return Ok(()) };
        let seen = Seen { list: changes.list_digest(), diff: Some(digest(diff)), at };
        self.saw(|all| {
            all.insert(task.id, seen);
        })
    }

    fn saw(&self, change: impl FnOnce(&mut BTreeMap<TaskId, Seen>)) -> Result<()> {
        self.update_json(FILE, |all| {
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

impl Account {
    /// Orders what is to be done with the changes of a task, and waits until its machine has done it, is away, or takes too long. `seen`: the
    /// digest of what was shown. `unseen`: also with what was not shown.
    pub async fn order_changes(
        &self,
        (run, task): (&Run, &Task),
        wish: Wish,
        seen: String,
        unseen: bool,
    ) -> Result<TaskChanges> {
        let action = match wish {
            Wish::Apply => TaskAction::Apply,
            Wish::Discard => TaskAction::Discard,
        };
        let signed = ChangesOrder::from(self.order(run, task, Wanted::Changes { action, seen, unseen })?);
        let begun = Instant::now();
        loop {
            let answer = match wish {
                Wish::Apply => self.client.apply_changes(run.id, task.id, &signed, ONE_WAIT).await?,
                Wish::Discard => self.client.discard_changes(run.id, task.id, &signed, ONE_WAIT).await?,
            };
            let changes = answer.changes.ok_or(Error::ChangesNotKnown)?;
            if !changes.state.is_ordered() || changes.is_away() || begun.elapsed() > LONGEST_WAIT {
                return Ok(changes);
            }
        }
    }
}

/// What the owner wants done with changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Apply,
    Discard,
}

/// Why an order is not signed, unless it is wanted unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSeen {
    /// It differs from what was shown.
    Changed,
    /// The list of files is cut, and the diff was not shown.
    LongList,
    /// A part of the diff is missing.
    Part,
    /// A program wants it, and a person was shown nothing.
    Nothing,
}

/// Why nothing is to be signed. `before`: what was shown on this device, and `Some(None)` when that has changed since.
pub fn refusal(changes: &TaskChanges, before: Option<&Option<Shown>>, wish: Wish, is_program: bool) -> Option<NotSeen> {
    match before {
        Some(None) => Some(NotSeen::Changed),
        Some(Some(Shown::Diff(_))) => None,
        _ if wish == Wish::Apply && !changes.has_whole_diff() => Some(NotSeen::Part),
        _ if wish == Wish::Apply && !changes.has_whole_list() => Some(NotSeen::LongList),
        None if is_program && changes.file_count > 0 => Some(NotSeen::Nothing),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::changes::{ChangedFile, FileChange};
    use ensemble_types::text::Text;

    fn changed(state: ChangesState) -> TaskChanges {
        TaskChanges {
            state,
            was_applied: false,
            waiting_for: None,
            files: vec![ChangedFile {
                path: Text::new("a").unwrap(),
                kind: FileChange::Added,
                added: Some(3),
                removed: Some(0),
            }],
            file_count: 1,
            added: 3,
            removed: 0,
            uncommitted: 2,
            conflicted: Vec::new(),
            unknown: false,
            notes: Vec::new(),
            failure: None,
            diff_truncated: false,
        }
    }

    /// A task that has completed in 5 s.
    fn task(key: &str) -> Task {
        let id = ensemble_types::ids::TaskId::generate();
        let task = serde_json::json!({
            "id": id, "ref": ensemble_types::refs::Ref::of(&id), "taskKey": key, "provider": "codex", "dependsOn": [],
            "status": "completed", "attempt": 1, "createdAt": "1970-01-01T00:00:00.000Z",
            "startedAt": "1970-01-01T00:00:10.000Z", "finishedAt": "1970-01-01T00:00:15.000Z",
        });
        serde_json::from_value(task).unwrap()
    }

    fn seen(changes: &TaskChanges, diff: Option<&str>) -> Seen {
        Seen { list: changes.list_digest(), diff: diff.map(str::to_owned), at: Timestamp::from_unix_seconds(1) }
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
        remember_list(&mut all, &one, &changes, Timestamp::from_unix_seconds(2));
        assert_eq!(all[&one.id].diff.as_deref(), Some("d"));
        changes.removed += 1;
        remember_list(&mut all, &one, &changes, Timestamp::from_unix_seconds(2));
        assert_eq!((&all[&one.id].list, &all[&one.id].diff), (&changes.list_digest(), &None));
        assert_eq!(all[&other.id], with_diff, "of the other task nothing was shown");
    }

    #[test]
    fn an_order_is_signed_for_what_was_shown() {
        let mut changes = changed(ChangesState::Kept);
        let list = Some(Shown::List("l".to_owned()));
        let diff = Some(Shown::Diff("d".to_owned()));
        let refused = |changes: &TaskChanges, before: Option<&Option<Shown>>, is_program| {
            [Wish::Apply, Wish::Discard].map(|wish| refusal(changes, before, wish, is_program))
        };
        assert_eq!(refused(&changes, None, false), [None, None], "all files are printed now");
        assert_eq!(refused(&changes, None, true), [Some(NotSeen::Nothing); 2], "a program prints nothing");
        assert_eq!(refused(&changes, Some(&list), true), [None, None]);
        assert_eq!(refused(&changes, Some(&None), false), [Some(NotSeen::Changed); 2]);
        changes.file_count = 300;
        assert_eq!(refused(&changes, Some(&list), false), [Some(NotSeen::LongList), None]);
        assert_eq!(refused(&changes, Some(&diff), false), [None, None], "the whole diff was shown");
        changes.diff_truncated = true;
        assert_eq!(refused(&changes, Some(&list), false), [Some(NotSeen::Part), None]);
    }
}
