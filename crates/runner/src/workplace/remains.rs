//! What is in a worktree and would be lost with it although no commit of its branch has it: other repositories, and commits that
//! no branch has.
//!
//! git lists neither as a change, and does not list ignored files at all. So the folder itself is searched.

use std::fs;
use std::path::{Path, PathBuf};

use ensemble_git::GitError;
use ensemble_git::repository::Repository;
use ensemble_process::disk::on_disk;

/// Files and folders that are looked at. What is in a larger worktree is not known.
const MOST_LOOKED_AT: usize = 1_000_000;
/// Repositories that are named.
const MOST_NAMED: usize = 3;

/// Of the list of what is ignored.
const MOST_LIST_BYTES: usize = 64 << 20;
/// What tools make from the files of a repository, and make again.
const OUTPUTS: [&str; 20] = [
    ".DS_Store",
    ".cache",
    ".gradle",
    ".mypy_cache",
    ".next",
    ".nuxt",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".turbo",
    ".venv",
    "__pycache__",
    "bin",
    "build",
    "coverage",
    "dist",
    "node_modules",
    "obj",
    "target",
    "venv",
];
const OUTPUT_ENDS: [&str; 6] = [".o", ".pyc", ".class", ".log", ".tmp", ".coverage"];

/// One sentence for each thing that would be lost.
///
/// # Errors
/// It cannot be found out.
pub(super) async fn find(own: &Repository) -> Result<Vec<String>, GitError> {
    let top = own.top.clone();
    let inner = on_disk(move || repositories(&top)).await?;
    let mut found = Vec::new();
    if !inner.is_empty() {
        let names: Vec<String> =
            inner.iter().take(MOST_NAMED).map(|path| own.top.join(path).display().to_string()).collect();
        let more = if inner.len() > MOST_NAMED { ", and others" } else { "" };
        let (is, it) =
            if inner.len() == 1 { ("is a separate repository", "it") } else { ("are separate repositories", "them") };
        found.push(format!(
            "{}{more} {is}: no commit of the worktree has {it}, and `apply` leaves {it} out.",
            names.join(", ")
        ));
    }
    let ignored = ignored(own).await?;
    if !ignored.is_empty() {
        let more = if ignored.len() > MOST_NAMED { ", and others" } else { "" };
        let names = ignored.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        found.push(format!(
            "git ignores {names}{more}: no commit of the worktree has them, and `apply` leaves them out."
        ));
    }
    if has_lost_commits(own).await? {
        found.push(
            "The agent made commits that no branch has any more: `git reflog` in the worktree names them.".to_owned(),
        );
    }
    Ok(found)
}

/// The folders below the top that have a repository, from the top. Symbolic links are not followed.
fn repositories(top: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut folders, mut looked_at) = (Vec::new(), vec![PathBuf::new()], 0_usize);
    while let Some(folder) = folders.pop() {
        let is_top = folder.as_os_str().is_empty();
        let mut inside = Vec::new();
        let mut has_repository = false;
        for entry in fs::read_dir(top.join(&folder))? {
            let entry = entry?;
            looked_at += 1;
            if looked_at > MOST_LOOKED_AT {
                return Err(std::io::Error::other(format!("it has more than {MOST_LOOKED_AT} files")));
            }
            let name = entry.file_name();
            if name == ".git" {
                // The worktree's own is a file. A folder is what the agent has made of it.
                has_repository = !is_top || entry.file_type()?.is_dir();
            } else if entry.file_type()?.is_dir() {
                inside.push(folder.join(name));
            }
        }
        has_repository |= !is_top && is_bare(&top.join(&folder));
        if has_repository {
            found.push(folder);
        } else {
            folders.append(&mut inside);
        }
    }
    found.sort();
    Ok(found)
}

/// As git recognises a repository without a working tree (gitrepository-layout(5)).
fn is_bare(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

/// What git ignores and what is no output of a tool, as far as its name says.
async fn ignored(own: &Repository) -> Result<Vec<String>, GitError> {
    let list = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"];
    let output = own.call(&list).at_most(MOST_LIST_BYTES).output().await?;
    let paths = output.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let is_output = |path: &str| {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.any(|name| OUTPUTS.contains(&name)) || OUTPUT_ENDS.iter().any(|end| path.ends_with(end))
    };
    Ok(paths.filter(|path| !path.is_empty() && !is_output(path)).map(|path| path.into_owned()).collect())
}

/// Whether the worktree's HEAD was at a commit that nothing but its log has.
async fn has_lost_commits(own: &Repository) -> Result<bool, GitError> {
    let log = match fs::read_to_string(own.git_dir.join("logs/HEAD")) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let ids = log.lines().filter_map(|line| line.split(' ').nth(1));
    let mut known = String::new();
    for id in ids {
        // One that git has removed is lost already.
        if own.commit(id).await?.is_some() && !known.contains(id) {
            known.push_str(id);
            known.push('\n');
        }
    }
    let call = own.call(&["rev-list", "--max-count=1", "--stdin", "--not", "--all"]);
    Ok(!call.input(known.into_bytes()).line().await?.is_empty())
}
