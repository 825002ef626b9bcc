//! A three-way merge of a worktree's branch into the working tree that it was made from. Nothing is staged. A file with
//! uncommitted changes is never changed: then, or with a conflict, nothing is changed at all. What an earlier merge of the same
//! worktree wrote, and was not changed since, is no change of the person: a later merge replaces it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use ensemble_git::GitError;
use ensemble_git::difference::{Entry, NOTHING, SUBMODULE, entries};
use ensemble_git::repository::{Repository, inside};
use ensemble_git::scratch::Scratch;
use ensemble_git::snapshot::{self, Target};
use serde::{Deserialize, Serialize};

/// A merge that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Applied {
    /// The commit of the working tree at that time.
    onto: String,
    /// The commit of the branch.
    branch: String,
    /// The commit of the branch that `onto` has in it, because the person has committed what an earlier merge wrote.
    contained: Option<String>,
    /// What this merge and earlier ones wrote, as far as the person has neither committed nor changed it.
    written: Vec<Written>,
}

impl Applied {
    /// The commit of the branch that was merged.
    pub(super) fn branch(&self) -> &str {
        &self.branch
    }
}

/// A file that a merge wrote or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    path: Vec<u8>,
    old_mode: String,
    mode: String,
    id: String,
}

/// The result of a merge.
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
    let (written, contained) = since(repository, &ours, earlier).await?;
    let onto = with_branch(repository, &ours, contained.as_deref()).await?;
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
    let hidden = hidden(repository).await?;
    let is_ours = |path: &[u8], found: &State| {
        written.iter().any(|old| old.path == path && (&old.mode, &old.id) == (&found.0, &found.1))
    };
    let (mut todo, mut conflicts): (Vec<Entry>, Vec<&[u8]>) = (Vec::new(), Vec::new());
    for entry in &wanted {
        let path = entry.path.as_slice();
        let change = match theirs_now.get(path) {
            _ if hidden.contains(path) || now.large.contains_key(path) => None,
            // The person has the same change already.
            Some((mode, id)) if *mode == entry.new_mode && (*id == entry.new_id || mode == NOTHING) => continue,
            Some(found) if is_ours(path, found) => Some(Entry { old_mode: found.0.clone(), ..entry.clone() }),
            Some(_) => None,
            None => Some(entry.clone()),
        };
        match change.filter(|change| !is_in_the_way(&repository.top, change, &removed)) {
            Some(change) => todo.push(change),
            None => conflicts.push(path),
        }
    }
    // What an earlier merge wrote and the agent has taken back.
    let is_wanted = |path: &[u8]| wanted.iter().any(|entry| entry.path == path);
    for old in written.iter().filter(|old| !is_wanted(&old.path)) {
        if theirs_now.get(&old.path) == Some(&(old.mode.clone(), old.id.clone())) {
            let (old_mode, new_mode) = (old.mode.clone(), old.old_mode.clone());
            let change = Entry { path: old.path.clone(), old_mode, new_mode, new_id: String::new(), counts: None };
            if is_in_the_way(&repository.top, &change, &removed) {
                conflicts.push(&old.path);
            } else {
                todo.push(change);
            }
        }
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
        restore(repository, scratch, &now.tree, &todo).await;
        return Err(error);
    }
    let is_done = |path: &[u8]| todo.iter().any(|entry| entry.path == path);
    let kept = written
        .into_iter()
        .filter(|old| !is_done(&old.path) && theirs_now.get(&old.path) == Some(&(old.mode.clone(), old.id.clone())));
    let new = wanted.iter().filter(|entry| is_done(&entry.path)).map(|entry| Written {
        path: entry.path.clone(),
        old_mode: entry.old_mode.clone(),
        mode: entry.new_mode.clone(),
        id: entry.new_id.clone(),
    });
    let written = kept.chain(new).collect();
    Ok(Merged::Applied(Applied { onto: ours, branch: theirs, contained, written }))
}

/// The mode and the content of a file.
type State = (String, String);

/// What earlier merges wrote and HEAD does not have, and the commit of the branch that HEAD has in it.
async fn since(
    repository: &Repository,
    ours: &str,
    earlier: Option<&Applied>,
) -> Result<(Vec<Written>, Option<String>), GitError> {
    let Some(Applied { onto, branch, contained, written }) = earlier.cloned() else { return Ok((Vec::new(), None)) };
    if onto == ours {
        return Ok((written, contained));
    }
    if repository.commit(&onto).await?.is_none() {
        return Ok((Vec::new(), None));
    }
    let moved = states(entries(repository, Target::Own, (&onto, ours)).await?);
    if !written.is_empty()
        && written.iter().all(|old| moved.get(&old.path) == Some(&(old.mode.clone(), old.id.clone())))
    {
        return Ok((Vec::new(), Some(branch)));
    }
    let continues = repository.call(&["merge-base", "--is-ancestor", &onto, ours]).run().await?.0 == Some(0);
    let same = written.into_iter().filter(|old| !moved.contains_key(&old.path)).collect();
    Ok((same, contained.filter(|_| continues)))
}

/// The commit to merge into. When the person has committed what an earlier merge wrote, git has to know that it came from the
/// branch, or it takes both for changes of the same lines.
async fn with_branch(repository: &Repository, ours: &str, contained: Option<&str>) -> Result<String, GitError> {
    let Some(contained) = contained else { return Ok(ours.to_owned()) };
    let tree = format!("{ours}^{{tree}}");
    repository.call(&["commit-tree", &tree, "-p", ours, "-p", contained, "-m", "applied"]).line().await
}

/// The files whose changes git does not look for: `skip-worktree` and `assume-unchanged`.
async fn hidden(repository: &Repository) -> Result<HashSet<Vec<u8>>, GitError> {
    let output = repository.call(&["ls-files", "-v", "-z"]).at_most(256 << 20).output().await?;
    let lines = output.split(|byte| *byte == 0);
    let flagged = lines.filter(|line| line.first().is_some_and(|tag| *tag == b'S' || tag.is_ascii_lowercase()));
    Ok(flagged.filter_map(|line| line.get(2..)).map(<[u8]>::to_vec).collect())
}

fn states(entries: Vec<Entry>) -> HashMap<Vec<u8>, (String, String)> {
    entries.into_iter().map(|entry| (entry.path, (entry.new_mode, entry.new_id))).collect()
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
    // Without force for new files: one that appeared meanwhile stays.
    check_out(repository, scratch, "merged", tree, (&new, false)).await?;
    check_out(repository, scratch, "merged", tree, (&changed, true)).await?;
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

/// Writes files of a tree into the working tree, with the runner's own index.
async fn check_out(
    repository: &Repository,
    scratch: &Scratch,
    index: &str,
    tree: &str,
    (files, force): (&[&Entry], bool),
) -> Result<(), GitError> {
    if files.is_empty() {
        return Ok(());
    }
    let (index, objects) = (scratch.join(index), repository.path_of("objects").await?);
    // The state before may have objects that are only in the folder of this comparison.
    let call = |args: &[&str]| Target::Scratch(scratch).call(repository, &objects, args).env("GIT_INDEX_FILE", &index);
    call(&["read-tree", tree]).output().await?;
    let mut list = Vec::new();
    for file in files {
        list.extend_from_slice(&file.path);
        list.push(0);
    }
    let mut args = vec!["checkout-index", "--quiet", "-z", "--stdin"];
    if force {
        args.push("--force");
    }
    call(&args).input(list).output().await.map(drop)
}

/// After a failure: brings back what was there before.
async fn restore(repository: &Repository, scratch: &Scratch, before: &str, todo: &[Entry]) {
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
    if let Err(error) = check_out(repository, scratch, "restored", before, (&old, true)).await {
        tracing::error!(path = %repository.top.display(), "Cannot restore files after a merge that failed: {error}");
    }
}
