//! What the owner of a worktree is shown of its changes. Orders name it.

use ensemble_git::difference::Changed;
use ensemble_types::signatures::digest;
use serde::{Deserialize, Serialize};

/// What is said of the changes of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    /// The digests of the diff and of the list of files.
    diff: String,
    files: String,
    /// Nothing is left out in the diff.
    #[serde(default)]
    has_whole_diff: bool,
    /// Nor in the list.
    #[serde(default)]
    has_whole_list: bool,
    /// The commit of the branch that has it. Without one it is not known what was changed.
    #[serde(default)]
    commit: Option<String>,
}

impl Shown {
    pub(super) fn of(changed: &Changed) -> Self {
        let diff: String = changed.diff.iter().map(|part| part.data.as_str()).collect();
        Self {
            diff: digest(diff),
            files: changed.report.list_digest(),
            has_whole_diff: changed.has_whole_diff,
            has_whole_list: changed.has_whole_list,
            commit: changed.commit.clone(),
        }
    }

    /// Whether a digest is that of what was shown.
    pub(super) fn is(&self, seen: Option<&str>) -> bool {
        seen.is_some_and(|seen| seen == self.diff || seen == self.files)
    }

    /// Whether a person who names this digest has seen all that was changed. A whole diff has all files.
    pub(super) fn is_all(&self, seen: Option<&str>) -> bool {
        self.has_whole_diff && seen.is_some_and(|seen| seen == self.diff || (self.has_whole_list && seen == self.files))
    }

    /// The commit that it was found in.
    pub(super) fn commit(&self) -> Option<&str> {
        self.commit.as_deref()
    }
}
