//! What a task changed in its files, and what becomes of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::runs::{Run, Task};
use crate::signatures::digest;
use crate::text::{Blob, Text};

/// Where the agent of a task works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// In the directory as it is. Tasks of one machine in the same git working tree, or in the same directory outside of git,
    /// take turns.
    #[default]
    None,
    /// In a git worktree and on a branch of its own. Uncommitted changes of the directory are not in it.
    Worktree,
    /// In the directory as it is, together with other tasks: for tasks that only read.
    Shared,
}

impl Isolation {
    pub const ALL: [Self; 3] = [Self::None, Self::Worktree, Self::Shared];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Worktree => "worktree",
            Self::Shared => "shared",
        }
    }
}

impl std::str::FromStr for Isolation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|isolation| isolation.as_str() == text);
        found.ok_or("must be none, worktree or shared")
    }
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseWaitsFor {
    /// Another task of the machine works in the directory. The agent has not begun.
    Directory,
    /// A person is to answer what the agent asks in the task's session.
    Input,
}

impl LeaseWaitsFor {
    pub const ALL: [Self; 2] = [Self::Directory, Self::Input];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Input => "input",
        }
    }
}

/// What happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    Added,
    Modified,
    Deleted,
}

/// A file that a task changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    /// From the top of the git working tree.
    pub path: Text<1, 1_024>,
    pub kind: FileChange,
    /// Lines. `null` for a binary file.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// The name in front of a list of files whose digest is signed.
const LIST: &str = "ensemble-changes-v1\n";

/// The digest of a list of files with its counts, as people are shown it: of `ensemble-changes-v1`, a line feed, and the JSON text
/// `[fileCount,added,removed,[[path,kind,added,removed],…]]`.
pub fn list_digest(files: &[ChangedFile], file_count: u32, (added, removed): (u64, u64)) -> String {
    let files: Vec<_> = files.iter().map(|file| (&*file.path, file.kind, file.added, file.removed)).collect();
    let list = serde_json::json!([file_count, added, removed, files]);
    digest(format!("{LIST}{list}"))
}

/// What an attempt changed, as its runner reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedChanges {
    /// The changes are in a worktree, which the machine keeps.
    pub kept: bool,
    /// The first 256 files by name.
    #[schema(max_items = 256)]
    pub files: Vec<ChangedFile>,
    /// How many files were changed.
    pub file_count: u32,
    /// Lines, in all files.
    pub added: u64,
    pub removed: u64,
    /// How many files had uncommitted changes when the worktree was made. They are not in it.
    #[serde(default)]
    pub uncommitted: u32,
    /// It is not known what was changed. `notes` say why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// A part of the diff was not sent: it was too long, or the service did not take it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// What people should know: why the changes are not known, or what is in the worktree and in no commit of it. At most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 4)]
    pub notes: Vec<Text<1, 500>>,
}

impl ReportedChanges {
    /// See [`list_digest`].
    pub fn list_digest(&self) -> String {
        list_digest(&self.files, self.file_count, (self.added, self.removed))
    }
}

/// What becomes of the changes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangesState {
    /// There is no worktree: the agent worked in the directory itself.
    None,
    /// They are in a worktree on the task's machine, which is there also when the task changed nothing.
    Kept,
    /// The machine has the order to merge them into the working tree.
    Applying,
    /// They are in the working tree.
    Applied,
    /// They could not be merged, and nothing was changed. `conflicted` names the files; without any, `failure` says why.
    Conflicted,
    /// The machine has the order to remove the worktree.
    Discarding,
    Discarded,
    /// The machine was deleted, or the worktree is gone.
    Lost,
}

impl ChangesState {
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Kept,
        Self::Applying,
        Self::Applied,
        Self::Conflicted,
        Self::Discarding,
        Self::Discarded,
        Self::Lost,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kept => "kept",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Conflicted => "conflicted",
            Self::Discarding => "discarding",
            Self::Discarded => "discarded",
            Self::Lost => "lost",
        }
    }

    /// An order to the machine is open.
    pub const fn is_ordered(self) -> bool {
        matches!(self, Self::Applying | Self::Discarding)
    }
}

/// What an order to apply or to discard waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangesWaitFor {
    /// The machine is away. The order waits for 24 hours.
    Machine,
}

/// What a task changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskChanges {
    pub state: ChangesState,
    /// They were merged into the working tree, also when the worktree has been removed since.
    #[serde(default)]
    pub was_applied: bool,
    pub waiting_for: Option<ChangesWaitFor>,
    /// The first 256 files by name.
    pub files: Vec<ChangedFile>,
    pub file_count: u32,
    /// Lines, in all files.
    pub added: u64,
    pub removed: u64,
    /// How many files had uncommitted changes when the worktree was made. They are not in it.
    pub uncommitted: u32,
    /// The files because of which the changes could not be applied, at most 256.
    pub conflicted: Vec<String>,
    /// It is not known what was changed. `notes` say why.
    #[serde(default)]
    pub unknown: bool,
    /// What people should know: why the changes are not known, or what is in the worktree and in no commit of it.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why the machine could not carry out the last order. Nothing was changed.
    #[serde(default)]
    pub failure: Option<String>,
    /// The stored diff is not complete: it was longer than its bounds, the account's quota was reached, or its machine has not sent all.
    pub diff_truncated: bool,
}

impl TaskChanges {
    /// See [`list_digest`].
    pub fn list_digest(&self) -> String {
        list_digest(&self.files, self.file_count, (self.added, self.removed))
    }

    /// Whether all that was changed is in the stored diff, as far as the server says.
    pub fn has_whole_diff(&self) -> bool {
        !self.unknown && !self.diff_truncated
    }

    /// Whether all files that were changed are in the list.
    pub fn has_whole_list(&self) -> bool {
        let listed = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        !self.unknown && listed == self.file_count
    }

    /// Whether a worktree can hold work: files that changed, or what the machine had to say about it.
    pub fn has_something(&self) -> bool {
        self.file_count > 0 || self.unknown || !self.notes.is_empty()
    }

    /// Whether an open order waits for a machine that is away.
    pub fn is_away(&self) -> bool {
        self.waiting_for == Some(ChangesWaitFor::Machine)
    }
}

impl Run {
    /// The tasks that began with what this task changed, and have it in their worktrees.
    fn continued_by<'r>(&'r self, task: &'r Task) -> impl Iterator<Item = &'r Task> {
        let key = task.task_key.as_deref();
        // A stale one began with what the task had changed before it continued.
        let has_it =
            |other: &&Task| !other.stale && other.changes.as_ref().is_some_and(|changes| changes.file_count > 0);
        let others = self.tasks.iter().flatten().filter(has_it);
        others.filter(move |other| key.is_some() && other.base.as_deref() == key && other.depends_on.contains(&task.id))
    }

    /// Whether what this task changed is in the worktree of another one that began with it.
    pub fn is_continued(&self, task: &Task) -> bool {
        self.continued_by(task).next().is_some()
    }

    /// Whether what this task changed was applied with what another one made of it.
    pub fn was_applied_with(&self, task: &Task) -> bool {
        self.continued_by(task).any(|other| {
            other.changes.as_ref().is_some_and(|changes| changes.was_applied) || self.was_applied_with(other)
        })
    }

    /// The tasks whose changes are in the worktree of this one, because it began with them: the nearest first.
    pub fn began_with(&self, task: &Task) -> Vec<&Task> {
        let (mut found, mut base) = (Vec::new(), task.base.as_deref());
        // A task begins with one that it depends on, so this ends.
        while let Some(earlier) =
            base.and_then(|key| self.tasks.iter().flatten().find(|other| other.task_key.as_deref() == Some(key)))
        {
            found.push(earlier);
            base = earlier.base.as_deref();
        }
        found
    }
}

/// A part of an attempt's diff. It replaces the part with the same path of the same attempt.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"fence": 1, "data": "--- a/README.md\n"})))]
pub struct LeaseDiff {
    pub fence: i64,
    /// The file that the part is about. Without it, the part is about all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text<1, 1_024>>,
    /// Unified, as `git diff` writes it.
    pub data: Blob<0, 2_097_152>,
}

/// The service accepted the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"truncated": false})))]
pub struct LeaseDiffTaken {
    /// It was not stored whole, because the diff is too long or the account's quota is reached.
    pub truncated: bool,
}

/// What came of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderOutcome {
    Applied,
    /// Nothing was changed: because of `files`, or because the changes are not those that their owner was shown.
    Conflicted,
    Discarded,
    /// The machine has no such worktree.
    Lost,
    /// The machine could not carry it out, and nothing was changed. `reason` says why.
    Failed,
}

/// A runner's report of what came of an order. It can be repeated.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"outcome": "applied", "files": ["README.md"]})))]
pub struct OrderResult {
    pub outcome: OrderOutcome,
    /// The files because of which nothing was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub files: Vec<Text<1, 1_024>>,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<1, 500>>,
}

/// The service accepted the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(examples(json!({"state": "applied"})))]
pub struct OrderResultTaken {
    /// What becomes of the changes now.
    pub state: ChangesState,
}
