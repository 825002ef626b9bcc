//! What the host notes when a session begins: which directory and which repository it has, and the state of its files.
//!
//! The objects of the snapshot are in the session's folder, so they go with it, and after 30 days at the latest.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ensemble_process::disk::{on_disk, replace};
use ensemble_protocol::seal::look::Refusal;
use ensemble_protocol::transcript::words::ReceiptCode;
use serde::{Deserialize, Serialize};

use super::below::Identity;
use super::refusal;
use crate::git::repository::Repository;
use crate::git::scratch::Scratch;
use crate::git::snapshot::{self, Snapshot, Stamp, Target};
use crate::git::{Git, GitError};

const FILE: &str = "begin.json";
const SNAPSHOT: &str = "begin";
/// A file of one line.
const LONGEST_PATH: u64 = 8 << 10;
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What was there when a session began.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin {
    pub(super) directory: Identity,
    /// `None`: the directory was in no repository.
    pub(super) repository: Option<Noted>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Noted {
    top: PathBuf,
    top_is: Identity,
    git_dir: PathBuf,
    git_dir_is: Identity,
    pub(super) head: Option<String>,
    /// `None`: there was too much to read.
    tree: Option<String>,
    #[serde(default)]
    large: Vec<(Vec<u8>, Stamp)>,
}

impl Begin {
    pub(super) fn read(session: &Path) -> io::Result<Option<Self>> {
        match fs::read(session.join(FILE)) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes what is there now. `session` is the folder of the session.
    pub(super) async fn note(git: &Git, session: &Path, directory: &Path, within: Duration) -> io::Result<Self> {
        let path = directory.to_owned();
        let identity = on_disk(move || Identity::of(&path)).await?;
        let repository = match Repository::find(git, directory).await {
            Some(repository) if is_around(&repository, directory).await => {
                Some(Noted::of(&repository, session, directory, within).await?)
            }
            _ => None,
        };
        let begin = Self { directory: identity, repository };
        let (path, written) = (session.join(FILE), begin.clone());
        on_disk(move || replace(&path, &written)).await?;
        Ok(begin)
    }

    /// Whether the same directory and repository are there. The number of a device may be another one after a restart of the machine.
    pub(super) fn is_there(&self, directory: &Path) -> bool {
        let is = |path: &Path, known: Identity| Identity::of(path).is_ok_and(|found| found == known);
        let repository = self.repository.as_ref();
        is(directory, self.directory)
            && repository.is_none_or(|of| is(&of.top, of.top_is) && is(&of.git_dir, of.git_dir_is))
    }
}

impl Noted {
    async fn of(repository: &Repository, session: &Path, directory: &Path, within: Duration) -> io::Result<Self> {
        let taken = tokio::time::timeout(within, take(repository, session, directory)).await;
        let snapshot = taken.ok().and_then(|taken| {
            taken
                .inspect_err(|error| tracing::debug!("The beginning of a session is known by its commit: {error}"))
                .ok()
        });
        let head = repository.commit("HEAD").await.ok().flatten();
        let (top, git_dir) = (repository.top.clone(), repository.git_dir.clone());
        on_disk(move || {
            let (top_is, git_dir_is) = (Identity::of(&top)?, Identity::of(&git_dir)?);
            let (tree, large) = snapshot.map(|taken| (taken.tree, taken.large)).unzip();
            let large = large.unwrap_or_default().into_iter().collect();
            Ok(Self { top, top_is, git_dir, git_dir_is, head, tree, large })
        })
        .await
    }

    /// The repository, if it is the one in which the session began.
    pub(super) async fn open(&self, git: &Git) -> Result<Repository, Refusal> {
        let is = |path: &Path, known: Identity| Identity::of(path).is_ok_and(|found| found == known);
        if !is(&self.top, self.top_is) || !is(&self.git_dir, self.git_dir_is) {
            let text = "It is not the repository in which this session began. Begin a session to see its changes.";
            return Err(refusal(ReceiptCode::Superseded, text));
        }
        Repository::open(git, self.top.clone(), self.git_dir.clone()).await.map_err(super::of_git)
    }

    /// The snapshot with the folder of its objects, while they are kept.
    pub(super) fn snapshot(&self, session: &Path) -> Option<(Snapshot, PathBuf)> {
        let objects = session.join(SNAPSHOT).join("objects");
        let tree = self.tree.clone().filter(|_| objects.is_dir())?;
        Some((Snapshot { tree, large: self.large.iter().cloned().collect::<BTreeMap<_, _>>() }, objects))
    }
}

async fn take(repository: &Repository, session: &Path, directory: &Path) -> Result<Snapshot, GitError> {
    let (new, kept) = (session.join(format!("{SNAPSHOT}.new")), session.join(SNAPSHOT));
    for old in [&new, &kept] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let scratch = Scratch::new(new)?;
    let below = directory.strip_prefix(&repository.top).unwrap_or(Path::new(""));
    let snapshot = snapshot::take_below(repository, Target::Scratch(&scratch), below).await?;
    scratch.keep(&kept)?;
    Ok(snapshot)
}

/// Whether the directory is in the working tree, and the repository is the tree's own: a file `.git` can name any other one.
async fn is_around(repository: &Repository, directory: &Path) -> bool {
    let (top, git_dir) = (&repository.top, &repository.git_dir);
    if !directory.starts_with(top) {
        return false;
    }
    if git_dir.starts_with(top) {
        return true;
    }
    let link = git_dir.join("gitdir");
    let link = on_disk(move || {
        let mut path = String::new();
        snapshot::open(&link)?.take(LONGEST_PATH).read_to_string(&mut path)?;
        Path::new(path.trim_end()).canonicalize()
    });
    if link.await.ok() == Some(top.join(".git")) {
        return true;
    }
    // Of a submodule, and of a repository that was made with `--separate-git-dir`.
    let named = repository.call(&["config", "--path", "--get", "core.worktree"]).line().await;
    named.is_ok_and(|named| git_dir.join(named).canonicalize().ok().as_ref() == Some(top))
}

/// Removes the snapshots that are too old.
pub(super) fn sweep(sessions: &Path, now: SystemTime) -> io::Result<()> {
    for session in fs::read_dir(sessions)? {
        let kept = session?.path().join(SNAPSHOT);
        let age =
            fs::metadata(&kept).and_then(|found| found.modified()).ok().and_then(|at| now.duration_since(at).ok());
        if age.is_some_and(|age| age > KEPT_FOR) {
            fs::remove_dir_all(kept)?;
        }
    }
    Ok(())
}
