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
use tokio::time::{Instant, timeout_at};

use super::below::{Closed, Identity};
use super::{Looks, refusal};
use ensemble_git::repository::Repository;
use ensemble_git::scratch::Scratch;
use ensemble_git::snapshot::{self, Snapshot, Stamp, Target};
use ensemble_git::{Git, GitError};

const FILE: &str = "begin.json";
const SNAPSHOT: &str = "begin";
/// A file of one line.
const LONGEST_PATH: u64 = 8 << 10;
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What was there when a session began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin {
    pub(super) directory: Identity,
    /// `None`: the directory was in no repository, or that is not known.
    pub(super) repository: Option<Noted>,
    /// It was noted later or only in part, so it is not what was there at first.
    #[serde(default)]
    pub(super) unknown: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes what is there now. `session` is the folder of the session.
    pub(super) async fn note(looks: &Looks, session: &Path, directory: &Path, is_late: bool) -> io::Result<()> {
        let (deadline, path) = (Instant::now() + looks.within, directory.to_owned());
        let directory_is = timeout_at(deadline, on_disk(move || Identity::of(&path))).await??;
        let found = timeout_at(deadline, Noted::find(looks, directory)).await;
        let (found, unknown) = match found {
            Ok(Ok(found)) => (found, is_late),
            _ => (None, true),
        };
        let repository = match found {
            Some((repository, mut noted)) if !unknown => {
                match timeout_at(deadline, take(looks, repository, (session, directory))).await {
                    Ok(Ok(Snapshot { tree, large })) => {
                        (noted.tree, noted.large) = (Some(tree), large.into_iter().collect());
                    }
                    Ok(Err(error)) => tracing::debug!("The beginning of a session is known by its commit: {error}"),
                    Err(_) => tracing::debug!("The beginning of a session is known by its commit: it takes too long"),
                }
                Some(noted)
            }
            found => found.map(|(_, noted)| noted),
        };
        let (path, begin) = (session.join(FILE), Self { directory: directory_is, repository, unknown });
        on_disk(move || replace(&path, &begin)).await
    }

    /// Finds what was noted in an earlier process. False: nothing was.
    ///
    /// # Errors
    /// It cannot be read, or something else is there now. What was noted stays.
    pub(super) fn find_again(session: &Path, directory: &Path) -> io::Result<bool> {
        let Some(noted) = Self::read(session)? else { return Ok(false) };
        let mut begin = noted.clone();
        let mut is_there = begin.directory.follow(directory);
        if let Some(Noted { top, top_is, git_dir, git_dir_is, .. }) = &mut begin.repository {
            is_there &= top_is.follow(top) & git_dir_is.follow(git_dir);
        }
        if begin != noted {
            replace(&session.join(FILE), &begin)?;
        }
        if is_there { Ok(true) } else { Err(io::Error::other("another directory or repository is in its place")) }
    }
}

impl Noted {
    async fn find(looks: &Looks, directory: &Path) -> Result<Option<(Repository, Self)>, GitError> {
        let Some(repository) = Repository::find(&looks.git, directory).await else { return Ok(None) };
        if !is_around(&repository, directory).await {
            return Ok(None);
        }
        let head = repository.commit("HEAD").await?;
        let (top, git_dir) = (repository.top.clone(), repository.git_dir.clone());
        let noted = on_disk(move || {
            let (top_is, git_dir_is) = (Identity::of(&top)?, Identity::of(&git_dir)?);
            Ok(Self { top, top_is, git_dir, git_dir_is, head, tree: None, large: Vec::new() })
        });
        Ok(Some((repository, noted.await?)))
    }

    /// The repository, if it is the one in which the session began.
    pub(super) async fn open(&self, git: &Git, scratch: &Scratch) -> Result<Repository, Refusal> {
        let is = |path: &Path, known: Identity| Identity::of(path).is_ok_and(|found| found == known);
        if !is(&self.top, self.top_is) || !is(&self.git_dir, self.git_dir_is) {
            let text = "It is not the repository in which this session began. Begin a session to see its changes.";
            return Err(refusal(ReceiptCode::Superseded, text));
        }
        let open = async {
            let mut repository = Repository::open(git, self.top.clone(), self.git_dir.clone()).await?;
            repository.pin(scratch).await?;
            Ok(repository)
        };
        open.await.map_err(super::of_git)
    }

    /// The snapshot with the folder of its objects, while they are kept.
    pub(super) fn snapshot(&self, session: &Path) -> Option<(Snapshot, PathBuf)> {
        let objects = session.join(SNAPSHOT).join("objects");
        let tree = self.tree.clone().filter(|_| objects.is_dir())?;
        Some((Snapshot { tree, large: self.large.iter().cloned().collect::<BTreeMap<_, _>>() }, objects))
    }
}

async fn take(
    looks: &Looks,
    mut repository: Repository,
    (session, directory): (&Path, &Path),
) -> Result<Snapshot, GitError> {
    let (new, kept) = (session.join(format!("{SNAPSHOT}.taken")), session.join(SNAPSHOT));
    let pinned = looks.scratch().await?;
    repository.pin(&pinned).await?;
    let scratch = on_disk(move || remove(&new).and_then(|()| Scratch::new(new))).await?;
    let below = directory.strip_prefix(&repository.top).unwrap_or(Path::new(""));
    let closed = Closed::for_directory(directory, &looks.closed);
    let target = Target::Scratch(&scratch);
    let snapshot = snapshot::take_below(&repository, target, below, &|path| closed.has(path)).await?;
    on_disk(move || remove(&kept).and_then(|()| scratch.keep(&kept))).await?;
    Ok(snapshot)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the directory is in the working tree, and the repository is the tree's own: a file `.git` can name any other one.
async fn is_around(repository: &Repository, directory: &Path) -> bool {
    let (top, git_dir) = (&repository.top, &repository.git_dir);
    if !directory.starts_with(top) || repository.own_common().await.is_err() {
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
