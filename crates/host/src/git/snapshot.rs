//! The state of a working tree as a git tree: what is committed, what is changed, and untracked files that are not ignored.
//!
//! It is written with the runner's own index and object directory, so neither the person's index nor the repository changes.
//! In a worktree of the runner it is written with the worktree's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;

use super::repository::{Repository, inside};
use super::scratch::Scratch;
use super::{Call, GitError};

/// A file that is larger is compared by its size and time only.
const LARGE: u64 = 8 << 20;
/// With more to read, nothing is compared.
const IN_SCRATCH: Bounds = Bounds { paths: 20_000, list_bytes: 16 << 20, bytes: 256 << 20, file_bytes: LARGE };
/// A worktree is only kept as a whole, so the bounds are what a machine can do.
const OF_WORKTREE: Bounds = Bounds { paths: 1_000_000, list_bytes: 256 << 20, bytes: 8 << 30, file_bytes: u64::MAX };

struct Bounds {
    paths: usize,
    /// Of a list of paths.
    list_bytes: usize,
    bytes: u64,
    /// A larger file is not read.
    file_bytes: u64,
}

/// Size, and time of the last change.
pub type Stamp = (u64, Option<std::time::SystemTime>);

/// Files that are too large to be compared by their contents.
pub type Large = BTreeMap<Vec<u8>, Stamp>;

/// The state of a working tree.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub tree: String,
    pub large: Large,
}

/// Where git writes.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// Into the runner's own folder, outside of the repository.
    Scratch(&'a Scratch),
    /// Into the index and the repository of the working tree.
    Own,
}

impl Target<'_> {
    /// A call that reads and writes there.
    pub fn call<'a>(self, repository: &'a Repository, objects: &Path, args: &[&str]) -> Call<'a> {
        let call = repository.call(args);
        match self {
            Self::Own => call,
            Self::Scratch(scratch) => call
                .env("GIT_INDEX_FILE", scratch.join("index"))
                .env("GIT_OBJECT_DIRECTORY", scratch.join("objects"))
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(objects)),
        }
    }
}

/// The list of directories is separated by colons, unless a path is quoted.
fn quoted(path: &Path) -> std::ffi::OsString {
    match path.to_str() {
        Some(text) => format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")).into(),
        None => path.as_os_str().to_owned(),
    }
}

pub async fn take(repository: &Repository, into: Target<'_>) -> Result<Snapshot, GitError> {
    let objects = repository.path_of("objects").await?;
    if let Target::Scratch(scratch) = into {
        let index = repository.path_of("index").await?;
        // A repository without an index has no tracked files.
        let copied = copy_index(&index, &scratch.join("index"));
        if copied.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            return Err(GitError::Other("the index cannot be read".to_owned()));
        }
    }
    let bounds = if matches!(into, Target::Own) { OF_WORKTREE } else { IN_SCRATCH };
    let mut paths = BTreeSet::new();
    for list in [
        &["diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=dirty"][..],
        &["ls-files", "-z", "--others", "--exclude-standard"],
    ] {
        let output = into.call(repository, &objects, list).at_most(bounds.list_bytes).output().await?;
        // A path that ends with a slash is another repository.
        let is_file = |path: &&[u8]| !path.is_empty() && !path.ends_with(b"/");
        paths.extend(output.split(|byte| *byte == 0).filter(is_file).map(<[u8]>::to_vec));
    }
    if paths.len() > bounds.paths {
        return Err(GitError::Other(format!("more than {} files are changed", bounds.paths)));
    }
    let (listed, large) = sort_out(&repository.top, paths, &bounds)?;
    let update = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
    into.call(repository, &objects, &update).input(listed).output().await?;
    let tree = into.call(repository, &objects, &["write-tree"]).line().await?;
    Ok(Snapshot { tree, large })
}

/// With the time of the original, by which git knows whose contents it must compare.
fn copy_index(index: &Path, copy: &Path) -> std::io::Result<()> {
    fs::copy(index, copy)?;
    let modified = fs::metadata(index)?.modified()?;
    File::options().write(true).open(copy)?.set_modified(modified)
}

/// The paths that git should read, each with a zero at its end, and the files that are too large for that.
fn sort_out(top: &Path, paths: BTreeSet<Vec<u8>>, bounds: &Bounds) -> Result<(Vec<u8>, Large), GitError> {
    let (mut listed, mut large, mut bytes) = (Vec::new(), BTreeMap::new(), 0_u64);
    for path in paths {
        let file = inside(top, &path);
        match fs::symlink_metadata(&file) {
            Ok(found) if found.is_file() && found.len() > bounds.file_bytes => {
                large.insert(path, (found.len(), found.modified().ok()));
                continue;
            }
            // A file that cannot be read cannot be compared. In a worktree it is work that would be lost.
            Ok(found) if found.is_file() && File::open(&file).is_err() => {
                if bounds.file_bytes == u64::MAX {
                    return Err(GitError::Other(format!("{} cannot be read", String::from_utf8_lossy(&path))));
                }
                continue;
            }
            Ok(found) if found.is_file() => bytes = bytes.saturating_add(found.len()),
            _ => {}
        }
        listed.extend_from_slice(&path);
        listed.push(0);
    }
    if bytes > bounds.bytes {
        return Err(GitError::Other(format!("more than {} bytes are changed", bounds.bytes)));
    }
    Ok((listed, large))
}
