//! What a person's checkout has and a worktree lacks: the contents behind filters, and submodules.

use std::collections::BTreeMap;
use std::path::Path;

use ensemble_git::difference::SUBMODULE;
use ensemble_git::repository::Repository;
use ensemble_git::{Git, GitError};
use ensemble_host::Environment;

/// Of a list of paths.
const MOST_LIST_BYTES: usize = 64 << 20;

/// One sentence for each kind of files of the git working tree around a directory that a worktree of it has in another form. Nothing
/// outside of git.
pub async fn absent_in_worktree(directory: &Path, environment: &Environment) -> Vec<String> {
    match Repository::find(&Git::new(environment, None), directory).await {
        Some(repository) => in_worktree(&repository).await,
        None => Vec::new(),
    }
}

/// The same, for a repository or one of its worktrees.
pub(super) async fn in_worktree(repository: &Repository) -> Vec<String> {
    find(repository).await.unwrap_or_default()
}

async fn find(repository: &Repository) -> Result<Vec<String>, GitError> {
    let mut said = Vec::new();
    let files = repository.call(&["ls-files", "-z"]).at_most(MOST_LIST_BYTES).output().await?;
    let asked = repository.call(&["check-attr", "-z", "--stdin", "filter"]).input(files).at_most(2 * MOST_LIST_BYTES);
    let mut filters: BTreeMap<String, usize> = BTreeMap::new();
    let answer = asked.output().await?;
    // Path, attribute and value, one after the other.
    let values = answer.split(|byte| *byte == 0).skip(2).step_by(3).map(String::from_utf8_lossy);
    for value in values.filter(|value| !matches!(value.as_ref(), "unspecified" | "unset" | "")) {
        *filters.entry(value.into_owned()).or_default() += 1;
    }
    for (filter, count) in filters {
        let (files, are) =
            if count == 1 { ("1 file is".to_owned(), "its") } else { (format!("{count} files are"), "their") };
        said.push(format!("{files} in {are} stored form in a worktree, because filters do not run there: {filter}."));
    }
    let staged = repository.call(&["ls-files", "-z", "--stage"]).at_most(2 * MOST_LIST_BYTES).output().await?;
    let is_submodule = |entry: &&[u8]| entry.starts_with(SUBMODULE.as_bytes());
    let submodules = staged.split(|byte| *byte == 0).filter(is_submodule).count();
    if submodules > 0 {
        let (folders, are) =
            if submodules == 1 { ("1 submodule", "is an empty folder") } else { ("Submodules", "are empty folders") };
        said.push(format!("{folders} {are} in a worktree."));
    }
    Ok(said)
}
