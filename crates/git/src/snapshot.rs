//! The state of a working tree as a git tree: what is committed, what is changed, and untracked files that are not ignored.
//!
//! It is written with the runner's own index and object directory, so neither the person's index nor the repository changes.
//! In a worktree of the runner it is written with the worktree's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ensemble_process::disk::on_disk;
use nix::fcntl::OFlag;

use crate::repository::{Repository, inside};
use crate::scratch::Scratch;
use crate::{Call, GitError};

/// A file that is larger is compared by its size and time only.
const LARGE: u64 = 8 << 20;
/// With more to read, nothing is compared.
const IN_SCRATCH: Bounds = Bounds { paths: 20_000, list_bytes: 16 << 20, bytes: 256 << 20, file_bytes: LARGE };
/// A worktree is only kept as a whole, so the bounds are what a machine can do.
const OF_WORKTREE: Bounds = Bounds { paths: 1_000_000, list_bytes: 256 << 20, bytes: 8 << 30, file_bytes: u64::MAX };

/// Of the index of a repository. What it says of its size is not its true one.
const MOST_INDEX: u64 = 256 << 20;
const SMALL_INDEX: u64 = 16 << 20;
const INDEX_PART: u64 = 1 << 20;

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
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", scratch.alternates(objects)),
        }
    }
}

/// The state of the whole working tree.
///
/// # Errors
/// git cannot say it, or there is too much to read.
pub async fn take(repository: &Repository, into: Target<'_>) -> Result<Snapshot, GitError> {
    take_below(repository, into, Path::new(""), &|_| false).await
}

/// The same with the changes below one directory, a path from the top. Outside of it, and in what is closed, everything is as in the index.
///
/// # Errors
/// As of [`take`].
pub async fn take_below(
    repository: &Repository,
    into: Target<'_>,
    below: &Path,
    is_closed: &(dyn Fn(&Path) -> bool + Sync),
) -> Result<Snapshot, GitError> {
    let objects = repository.path_of("objects").await?;
    if let Target::Scratch(scratch) = into {
        let index = repository.path_of("index").await?;
        // A repository without an index has no tracked files.
        let copy = scratch.join("index");
        // The thread ends when this is dropped.
        let awaited = Arc::new(());
        let is_awaited = Arc::downgrade(&awaited);
        let copied = on_disk(move || copy_index(&index, &copy, || is_awaited.strong_count() > 0)).await;
        drop(awaited);
        if let Err(error) = copied
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(GitError::Other(format!("the index cannot be read: {error}")));
        }
    }
    let bounds = if matches!(into, Target::Own) { OF_WORKTREE } else { IN_SCRATCH };
    let mut paths = BTreeSet::new();
    for list in [
        &["diff-files", "-z", "--name-only", "--no-renames", "--ignore-submodules=dirty"][..],
        &["ls-files", "-z", "--others", "--exclude-standard"],
    ] {
        let mut call = into.call(repository, &objects, list).at_most(bounds.list_bytes);
        if !below.as_os_str().is_empty() {
            call = call.arg("--").arg(below);
        }
        let output = call.output().await?;
        // A path that ends with a slash is another repository.
        let is_file = |path: &&[u8]| !path.is_empty() && !path.ends_with(b"/");
        let files = output.split(|byte| *byte == 0).filter(is_file);
        paths.extend(files.filter(|path| !is_closed(&inside(&repository.top, path))).map(<[u8]>::to_vec));
    }
    if paths.len() > bounds.paths {
        return Err(GitError::Other(format!("more than {} files are changed", bounds.paths)));
    }
    let top = repository.top.clone();
    let (listed, large) = on_disk(move || Ok(sort_out(&top, paths, &bounds))).await??;
    let update = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
    into.call(repository, &objects, &update).input(listed).output().await?;
    let tree = into.call(repository, &objects, &["write-tree"]).line().await?;
    Ok(Snapshot { tree, large })
}

/// With the time of the original, by which git knows whose contents it must compare.
fn copy_index(index: &Path, copy: &Path, is_awaited: impl Fn() -> bool) -> std::io::Result<()> {
    let from = open(index)?;
    let about = from.metadata()?;
    // A file system can compress an index, and has not yet written a small one.
    let is_sparse = about.len() > SMALL_INDEX && about.blocks().saturating_mul(512) < about.len() / 8;
    if about.len() > MOST_INDEX || is_sparse {
        return Err(std::io::Error::other("it is too large"));
    }
    let (mut from, mut to) = (from.take(about.len()), File::create(copy)?);
    while std::io::copy(&mut (&mut from).take(INDEX_PART), &mut to)? > 0 {
        if !is_awaited() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    to.set_modified(about.modified()?)
}

/// A regular file. What an agent has put in its place is no reason to wait.
pub fn open(path: &Path) -> std::io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no regular file")) }
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
            Ok(found) if found.is_file() && open(&file).is_err() => {
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
