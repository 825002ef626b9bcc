//! A three-way merge of a worktree's branch into the working tree that it was made from. Nothing is staged. A file with
//! uncommitted changes is never changed: then, or with a conflict, nothing is changed at all. What an earlier merge of the same
//! worktree wrote, and nobody has changed since, is no change of the person: a later merge replaces it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Scratch;
use super::difference::{Entry, NOTHING, SUBMODULE, entries};
use super::git::GitError;
use super::repository::{Repository, inside};
use super::snapshot::{self, Target};

/// A merge that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Applied {
    /// The commit of the working tree at that time.
    onto: String,
    /// The commit of the branch.
    branch: String,
    /// What came of both.
    tree: String,
}

/// What came of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged {
    Applied(Applied),
    /// Nothing was changed, because of these files.
    Conflicted(Vec<String>),
    /// There is no such branch.
    NoBranch,
}

pub(super) async fn apply(
    repository: &Repository,
    branch: &str,
    earlier: Option<&Applied>,
    scratch: &Scratch,
) -> Result<Merged, GitError> {
    let Some(theirs) = repository.commit(&format!("refs/heads/{branch}")).await? else { return Ok(Merged::NoBranch) };
    let Some(ours) = repository.commit("HEAD").await? else {
        return Err(GitError::Other("the working tree has no commit".to_owned()));
    };
    let written = written_by(repository, earlier).await;
    let onto = with_earlier(repository, &ours, earlier, &written).await?;
    let merge = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &onto, &theirs];
    let (code, output, error) = repository.call(&merge).at_most(16 << 20).run().await?;
    let mut fields = output.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    let merged = fields.next().map(|id| String::from_utf8_lossy(id).trim().to_owned()).unwrap_or_default();
    match code {
        Some(0) => {}
        Some(1) => return Ok(Merged::Conflicted(names(fields))),
        _ => return Err(GitError::Failed("merge-tree".to_owned(), error)),
    }
    let wanted = entries(repository, Target::Own, (&ours, &merged)).await?;
    let now = snapshot::take(repository, Target::Scratch(scratch)).await?;
    let theirs_now = states(entries(repository, Target::Scratch(scratch), (&ours, &now.tree)).await?);
    let removed: HashSet<&[u8]> =
        wanted.iter().filter(|entry| entry.new_mode == NOTHING).map(|entry| entry.path.as_slice()).collect();
    let (mut todo, mut conflicts) = (Vec::new(), Vec::new());
    for entry in &wanted {
        match theirs_now.get(&entry.path) {
            // The person has the same change already.
            Some((mode, id)) if *mode == entry.new_mode && (*id == entry.new_id || mode == NOTHING) => {}
            Some(found) if written.iter().any(|old| old.path == entry.path && state(old) == *found) => {
                todo.push(Entry { old_mode: found.0.clone(), ..entry.clone() });
            }
            Some(_) => conflicts.push(entry.path.as_slice()),
            None if now.large.contains_key(&entry.path) => conflicts.push(entry.path.as_slice()),
            None if is_in_the_way(&repository.top, entry, &removed) => conflicts.push(entry.path.as_slice()),
            None => todo.push(entry.clone()),
        }
    }
    if earlier.is_some_and(|earlier| earlier.onto == ours) {
        let is_wanted = |old: &Entry| wanted.iter().any(|entry| entry.path == old.path);
        let gone = written.into_iter().filter(|old| !is_wanted(old) && theirs_now.get(&old.path) == Some(&state(old)));
        todo.extend(gone.map(|old| Entry { old_mode: old.new_mode, new_mode: old.old_mode, ..old }));
    }
    if !conflicts.is_empty() {
        return Ok(Merged::Conflicted(names(conflicts.into_iter())));
    }
    let touched = changed_since(repository, scratch).await?;
    let touched: Vec<&[u8]> =
        todo.iter().map(|entry| entry.path.as_slice()).filter(|path| touched.contains(*path)).collect();
    if !touched.is_empty() {
        return Ok(Merged::Conflicted(names(touched.into_iter())));
    }
    if let Err(error) = write(repository, scratch, &merged, &todo).await {
        restore(repository, scratch, &ours, &todo).await;
        return Err(error);
    }
    Ok(Merged::Applied(Applied { onto: ours, branch: theirs, tree: merged }))
}

/// What an earlier merge wrote. Nothing, when it is not known any more: git removes objects that nobody refers to.
async fn written_by(repository: &Repository, earlier: Option<&Applied>) -> Vec<Entry> {
    let Some(Applied { onto, tree, .. }) = earlier else { return Vec::new() };
    entries(repository, Target::Own, (onto, tree)).await.unwrap_or_default()
}

/// The commit to merge into. When the person has committed what an earlier merge wrote, git has to know that it came from the
/// branch, or it takes both for changes of the same lines.
async fn with_earlier(
    repository: &Repository,
    ours: &str,
    earlier: Option<&Applied>,
    written: &[Entry],
) -> Result<String, GitError> {
    let Some(earlier) = earlier.filter(|earlier| earlier.onto != ours && !written.is_empty()) else {
        return Ok(ours.to_owned());
    };
    let differ = states(entries(repository, Target::Own, (ours, &earlier.tree)).await?);
    if written.iter().any(|entry| differ.contains_key(&entry.path)) {
        return Ok(ours.to_owned());
    }
    let tree = format!("{ours}^{{tree}}");
    repository.call(&["commit-tree", &tree, "-p", ours, "-p", &earlier.branch, "-m", "applied"]).line().await
}

fn states(entries: Vec<Entry>) -> HashMap<Vec<u8>, (String, String)> {
    entries.into_iter().map(|entry| (entry.path, (entry.new_mode, entry.new_id))).collect()
}

/// The mode and the content after a change.
fn state(entry: &Entry) -> (String, String) {
    (entry.new_mode.clone(), entry.new_id.clone())
}

/// The files that the person has changed since the snapshot was taken.
async fn changed_since(repository: &Repository, scratch: &Scratch) -> Result<HashSet<Vec<u8>>, GitError> {
    let objects = repository.path_of("objects").await?;
    let list = ["diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=dirty"];
    let output = Target::Scratch(scratch).call(repository, &objects, &list).at_most(16 << 20).output().await?;
    Ok(output.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}

fn names<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let mut names: Vec<String> =
        paths.map(|path| String::from_utf8_lossy(path).chars().take(1_024).collect()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Something is at the place of a new file that git does not know (an ignored file, for example), or a part of the path is no
/// directory. The commits of submodules are left to the person.
fn is_in_the_way(top: &Path, entry: &Entry, removed: &HashSet<&[u8]>) -> bool {
    if entry.old_mode == SUBMODULE || entry.new_mode == SUBMODULE {
        return true;
    }
    let is_new = entry.old_mode == NOTHING;
    if is_new && exists(&inside(top, &entry.path)) {
        return true;
    }
    let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let parents = slashes.filter_map(|at| entry.path.get(..at));
    parents.into_iter().any(|parent| match fs::symlink_metadata(inside(top, parent)) {
        Ok(found) => !found.is_dir() && !removed.contains(parent),
        Err(error) => error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::NotADirectory,
    })
}

fn exists(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::NotADirectory,
    }
}

async fn write(repository: &Repository, scratch: &Scratch, tree: &str, todo: &[Entry]) -> Result<(), GitError> {
    let (removed, written): (Vec<&Entry>, Vec<&Entry>) = todo.iter().partition(|entry| entry.new_mode == NOTHING);
    // A file that has to be a folder goes first, the others when everything else has worked.
    let makes_room = |entry: &&Entry| {
        let folder = [entry.path.as_slice(), b"/"].concat();
        written.iter().any(|other| other.path.starts_with(&folder))
    };
    let (first, last): (Vec<&Entry>, Vec<&Entry>) = removed.into_iter().partition(makes_room);
    remove(&repository.top, &first)?;
    let (new, changed): (Vec<&Entry>, Vec<&Entry>) = written.into_iter().partition(|entry| entry.old_mode == NOTHING);
    let index = scratch.join("merged");
    // Without force for new files: one that appeared meanwhile stays.
    check_out(repository, &index, tree, (&new, false)).await?;
    check_out(repository, &index, tree, (&changed, true)).await?;
    remove(&repository.top, &last)
}

fn remove(top: &Path, files: &[&Entry]) -> Result<(), GitError> {
    for entry in files {
        let file = inside(top, &entry.path);
        fs::remove_file(&file)?;
        // Folders that are empty now, as git does it.
        let mut parent = file.parent();
        while let Some(folder) = parent.filter(|folder| *folder != top) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
            parent = folder.parent();
        }
    }
    Ok(())
}

/// Writes files of a tree into the working tree, by an index of the runner's own.
async fn check_out(
    repository: &Repository,
    index: &Path,
    tree: &str,
    (files, force): (&[&Entry], bool),
) -> Result<(), GitError> {
    if files.is_empty() {
        return Ok(());
    }
    repository.call(&["read-tree", tree]).env("GIT_INDEX_FILE", index).output().await?;
    let mut list = Vec::new();
    for file in files {
        list.extend_from_slice(&file.path);
        list.push(0);
    }
    let mut args = vec!["checkout-index", "--quiet", "-z", "--stdin"];
    if force {
        args.push("--force");
    }
    repository.call(&args).env("GIT_INDEX_FILE", index).input(list).output().await.map(drop)
}

/// After a failure: brings back what was committed. The files had no other changes.
async fn restore(repository: &Repository, scratch: &Scratch, ours: &str, todo: &[Entry]) {
    let (new, old): (Vec<&Entry>, Vec<&Entry>) = todo.iter().partition(|entry| entry.old_mode == NOTHING);
    let expected: HashMap<&[u8], &str> =
        new.iter().map(|entry| (entry.path.as_slice(), entry.new_id.as_str())).collect();
    for (path, id) in expected {
        let file = inside(&repository.top, path);
        // Only what this merge has written.
        let found = repository.call(&["hash-object", "--no-filters", "--"]).arg(&file).line().await;
        if found.is_ok_and(|found| found == id) {
            let _ = fs::remove_file(&file);
        }
    }
    if let Err(error) = check_out(repository, &scratch.join("restored"), ours, (&old, true)).await {
        tracing::error!(path = %repository.top.display(), "Cannot restore files after a merge that failed: {error}");
    }
}
