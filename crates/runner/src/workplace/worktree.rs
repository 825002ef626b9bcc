//! The worktrees that the runner keeps: one for a task, with its own branch, in the state directory.
//!
//! There are at most [`MOST`]. The oldest one that was applied, or that nothing changed in, makes room for a new one. One
//! with changes is removed by the order of its owner and never by itself. Before one is removed without an order, it is looked
//! through again: what is there now counts, not what was written down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ensemble_git::repository::Repository;
use ensemble_git::scratch::private_dir;
use ensemble_git::snapshot::{self, Snapshot, Target};
use ensemble_git::{Git, GitError};
use ensemble_host::wake::wall_clock;
use ensemble_process::disk::replace;
use ensemble_types::ids::TaskId;
use serde::{Deserialize, Serialize};

use super::apply::Applied;
use super::remains;
use super::shown::Shown;
use super::turns::Turns;

/// Worktrees that are kept.
const MOST: usize = 32;
/// How long those that were applied, or that nothing changed in, are kept.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const RECORD: &str = "worktree.json";

const IN_THE_WAY: &str = "the branch `ensemble` is in the way, because the branches of tasks begin with `ensemble/`. Rename it: git branch -m \
                          ensemble NAME";
/// What git says when it may not fetch what a partial clone has left out.
const PARTIAL: [&str; 2] = ["promisor", "lazy fetching disabled"];
const NOT_HERE: &str = "has files that are not on this machine, because the repository is a partial clone. Check it out once, or: git fetch \
                        --refetch --no-filter";

/// What is known about a worktree.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Worktree {
    pub(super) task: TaskId,
    /// The working tree that it was made from, and that its changes are applied to.
    pub(super) source: PathBuf,
    pub(super) source_git_dir: PathBuf,
    /// Where it is, and its own part of the repository.
    pub(super) tree: PathBuf,
    pub(super) git_dir: PathBuf,
    /// The commit that it began with.
    pub(super) base: String,
    pub(super) branch: String,
    /// Files with uncommitted changes in `source` at that time.
    pub(super) uncommitted: u32,
    pub(super) state: State,
    /// The last time that its changes were applied.
    #[serde(default)]
    pub(super) applied: Option<Applied>,
    /// What it has changed is not known, or is not all on its branch.
    #[serde(default)]
    pub(super) is_unread: bool,
    /// The digest of what was signed as its task. Orders name it.
    #[serde(default)]
    pub(super) task_digest: Option<String>,
    /// What its owner was shown of the changes of the last attempt. `None`: no attempt has ended since one began.
    #[serde(default)]
    pub(super) shown: Option<Shown>,
    pub(super) used_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// An attempt works in it, or was interrupted.
    Open,
    Kept,
    Unchanged,
    Applied,
}

/// Why there is no worktree for a task.
#[derive(Debug)]
pub(super) enum NoWorktree {
    /// There are too many, and all of them have changes.
    Full,
    /// The base is not a commit.
    NoBase(String),
    Git(GitError),
}

impl From<GitError> for NoWorktree {
    fn from(error: GitError) -> Self {
        Self::Git(error)
    }
}

impl From<io::Error> for NoWorktree {
    fn from(error: io::Error) -> Self {
        Self::Git(error.into())
    }
}

/// What a new worktree begins with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base<'a> {
    Ref(&'a str),
    Task(TaskId),
}

/// The folder of worktrees.
#[derive(Debug)]
pub(super) struct Worktrees {
    folder: PathBuf,
    /// One at a time is made, so that the bound is kept.
    making: tokio::sync::Mutex<()>,
}

impl Worktrees {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, making: tokio::sync::Mutex::new(()) }
    }

    /// The folder of a task's worktree. The attempt that works there holds its turn.
    pub(super) fn folder_of(&self, task: TaskId) -> PathBuf {
        self.folder.join(task.to_string())
    }

    pub(super) fn find(&self, task: TaskId) -> io::Result<Option<Worktree>> {
        match fs::read(self.folder_of(task).join(RECORD)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn save(&self, worktree: &Worktree) -> io::Result<()> {
        replace(&self.folder_of(worktree.task).join(RECORD), worktree)
    }

    /// The worktree of a task: the one that an earlier attempt has left, or a new one. The caller has its turn.
    pub(super) async fn prepare(
        &self,
        git: &Git,
        turns: &Turns,
        source: &Repository,
        (task, base): (TaskId, Base<'_>),
        task_digest: Option<String>,
    ) -> Result<Worktree, NoWorktree> {
        if let Some(mut worktree) = self.find(task)?
            && worktree.source == source.top
            && worktree.tree.is_dir()
        {
            (worktree.state, worktree.used_at, worktree.task_digest) = (State::Open, now(), task_digest);
            self.save(&worktree)?;
            return Ok(worktree);
        }
        let _one = self.making.lock().await;
        let base = self.commit(source, base).await?;
        self.make_room(git, turns, task).await?;
        let name = source.top.file_name().unwrap_or("tree".as_ref());
        let (tree, branch) = (self.folder_of(task).join(name), format!("ensemble/{task}"));
        // Without a record it was not finished, and no attempt has worked in it.
        remove_all(&self.folder_of(task))?;
        private_dir(&self.folder_of(task))?;
        let uncommitted = uncommitted(source).await?;
        if source.commit("refs/heads/ensemble").await?.is_some() {
            return Err(GitError::Other(IN_THE_WAY.to_owned()).into());
        }
        let add = source.call(&["worktree", "add", "--quiet", "--force", "--no-track", "-B", &branch, "--"]);
        if let Err(error) = add.arg(&tree).arg(&base).output().await {
            // A half-made worktree has no work in it.
            let _ = fs::remove_dir_all(self.folder_of(task));
            let is_partial =
                matches!(&error, GitError::Failed(_, said) if PARTIAL.iter().any(|word| said.contains(word)));
            return Err(if is_partial { GitError::Other(format!("{base} {NOT_HERE}")).into() } else { error.into() });
        }
        let own = Repository::find(git, &tree).await.filter(|own| own.top == tree);
        let own = own.ok_or_else(|| GitError::Other("git has made no worktree".to_owned()))?;
        let worktree = Worktree {
            task,
            source: source.top.clone(),
            source_git_dir: source.git_dir.clone(),
            tree,
            git_dir: own.git_dir,
            base,
            branch,
            uncommitted,
            state: State::Open,
            applied: None,
            is_unread: false,
            task_digest,
            shown: None,
            used_at: now(),
        };
        self.save(&worktree)?;
        Ok(worktree)
    }

    async fn commit(&self, source: &Repository, base: Base<'_>) -> Result<String, NoWorktree> {
        let (revision, no_base) = match base {
            Base::Ref(name) if name.starts_with('-') => return Err(NoWorktree::NoBase(format!("{name:?} is no ref"))),
            Base::Ref("HEAD") => ("HEAD".to_owned(), "the repository has no commit yet".to_owned()),
            Base::Ref(name) => (name.to_owned(), format!("the repository has no commit {name:?}")),
            Base::Task(task) => {
                let of_task = self.find(task)?.filter(|worktree| worktree.source == source.top);
                let no_base = "this machine does not have the worktree of the task that it begins with".to_owned();
                let Some(worktree) = of_task else { return Err(NoWorktree::NoBase(no_base)) };
                (format!("refs/heads/{}", worktree.branch), no_base)
            }
        };
        source.commit(&revision).await?.ok_or(NoWorktree::NoBase(no_base))
    }

    /// Removes worktrees that are old, and the oldest ones when there are too many.
    async fn make_room(&self, git: &Git, turns: &Turns, but: TaskId) -> Result<(), NoWorktree> {
        let mut all: Vec<Worktree> = self.all()?.into_iter().filter(|worktree| worktree.task != but).collect();
        all.sort_by_key(|worktree| worktree.used_at);
        let mut surplus = (all.len() + 1).saturating_sub(MOST);
        for worktree in all {
            let is_old = now().saturating_sub(worktree.used_at) > KEPT.as_secs();
            // A worktree in use is not removed.
            let Some(_turn) = turns.try_take(&self.folder_of(worktree.task)) else { continue };
            if (surplus > 0 || is_old) && self.may_go(git, &worktree).await {
                self.remove(git, &worktree).await?;
                surplus = surplus.saturating_sub(1);
            }
        }
        if surplus > 0 { Err(NoWorktree::Full) } else { Ok(()) }
    }

    /// How many places are taken by worktrees that do not go by themselves, and how many there are.
    pub(super) fn places(&self) -> io::Result<(usize, usize)> {
        let stays = |worktree: &&Worktree| matches!(worktree.state, State::Open | State::Kept);
        Ok((self.all()?.iter().filter(stays).count(), MOST))
    }

    fn all(&self) -> io::Result<Vec<Worktree>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let task = name.to_str().and_then(|name| name.parse().ok());
            found.extend(task.map(|task| self.find(task)).transpose()?.flatten());
        }
        Ok(found)
    }

    /// Whether nothing is lost with a worktree.
    async fn may_go(&self, git: &Git, worktree: &Worktree) -> bool {
        worktree.state != State::Kept && holds_nothing(git, worktree).await.unwrap_or(false)
    }

    /// Removes a worktree and its branch, and nothing else. The caller has its turn.
    pub(super) async fn remove(&self, git: &Git, worktree: &Worktree) -> Result<(), GitError> {
        if is_part_of(worktree) {
            remove_all(&worktree.git_dir)?;
        }
        if let Ok(source) = Repository::open(git, worktree.source.clone(), worktree.source_git_dir.clone()).await
            && source.commit(&format!("refs/heads/{}", worktree.branch)).await?.is_some()
        {
            delete_branch(&source, worktree).await?;
        }
        // Symbolic links are removed, not followed.
        remove_all(&self.folder_of(worktree.task))?;
        Ok(())
    }
}

/// Deletes the branch of a worktree, unless it is checked out elsewhere.
async fn delete_branch(source: &Repository, worktree: &Worktree) -> Result<(), GitError> {
    let name = format!("refs/heads/{}", worktree.branch);
    let used_in = source.call(&["for-each-ref", "--format=%(worktreepath)", &name]).line().await?;
    if !used_in.is_empty() {
        let (task, branch) = (worktree.task, &worktree.branch);
        tracing::warn!(task.id = %task, branch, used_in, "The branch of a worktree is checked out elsewhere, so it stays");
        return Ok(());
    }
    source.call(&["update-ref", "-d", &name]).output().await.map(drop)
}

/// Whether the part of the repository is the worktree's own, and not what an agent has made of it.
fn is_part_of(worktree: &Worktree) -> bool {
    let points_back = fs::read_to_string(worktree.git_dir.join("gitdir"))
        .is_ok_and(|path| Path::new(path.trim_end()) == worktree.tree.join(".git"));
    let is_linked = worktree.git_dir.parent().is_some_and(|parent| parent.ends_with("worktrees"));
    points_back && is_linked
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Brings what is in a worktree onto its branch. Returns the states at its beginning and now.
pub(super) async fn commit_all(repository: &Repository, worktree: &Worktree) -> Result<(Snapshot, Snapshot), GitError> {
    let (_, before, after) = committed(repository, worktree).await?;
    Ok((before, after))
}

/// The same with the commit in front.
pub(super) async fn committed(
    repository: &Repository,
    worktree: &Worktree,
) -> Result<(String, Snapshot, Snapshot), GitError> {
    unlock(worktree);
    let after = snapshot::take(repository, Target::Own).await?;
    let head = repository.commit("HEAD").await?;
    let parent = head.clone().unwrap_or_else(|| worktree.base.clone());
    let tree = tree_of(repository, &parent).await?;
    let commit = if tree == after.tree {
        parent
    } else {
        let message = format!("What the task {} left", worktree.task);
        repository.call(&["commit-tree", &after.tree, "-p", &parent, "-m", &message]).line().await?
    };
    repository.call(&["update-ref"]).arg(format!("refs/heads/{}", worktree.branch)).arg(&commit).output().await?;
    let tree = tree_of(repository, &worktree.base).await?;
    Ok((commit, Snapshot { tree, large: Default::default() }, after))
}

/// Nothing is in it, committed or not, that is not in its base or was applied.
async fn holds_nothing(git: &Git, worktree: &Worktree) -> Result<bool, GitError> {
    if !worktree.tree.is_dir() {
        return Ok(true);
    }
    let repository = Repository::open(git, worktree.tree.clone(), worktree.git_dir.clone()).await?;
    let (before, after) = commit_all(&repository, worktree).await?;
    let known = match worktree.applied.as_ref().filter(|_| worktree.state == State::Applied) {
        Some(applied) => tree_of(&repository, applied.branch()).await?,
        None => before.tree,
    };
    Ok(after.tree == known && remains::find(&repository).await?.is_empty())
}

async fn tree_of(repository: &Repository, commit: &str) -> Result<String, GitError> {
    repository.call(&["rev-parse", "--verify"]).arg(format!("{commit}^{{tree}}")).line().await
}

/// Removes what a git that was killed has left in the worktree's own part of the repository. No process of an attempt works there.
fn unlock(worktree: &Worktree) {
    if is_part_of(worktree) {
        for name in ["index.lock", "HEAD.lock"] {
            let _ = fs::remove_file(worktree.git_dir.join(name));
        }
    }
}

/// How many files of a working tree have changes that are not committed.
pub(super) async fn uncommitted(source: &Repository) -> Result<u32, GitError> {
    let call = source.call(&["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty"]);
    match call.at_most(16 << 20).output().await {
        Ok(output) => {
            let files = output.split(|byte| *byte == 0).filter(|field| !field.is_empty()).count();
            Ok(u32::try_from(files).unwrap_or(u32::MAX))
        }
        Err(GitError::TooMuch(..)) => Ok(u32::MAX),
        Err(error) => Err(error),
    }
}

fn now() -> u64 {
    wall_clock().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
