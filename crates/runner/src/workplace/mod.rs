//! Where attempts work, and what they changed there.
//!
//! Attempts in one git working tree, or in one directory outside of git, take turns. An attempt with the isolation
//! `worktree` gets its own git worktree and branch in the runner's state directory. After an attempt the runner finds
//! out what it changed, without touching the person's index or files. On an order of the owner it merges a branch into the
//! working tree, or removes a worktree.

mod absent;
mod apply;
mod orders;
mod place;
mod remains;
mod shown;
mod turns;
mod worktree;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_git::Git;
use ensemble_git::repository::Repository;
use ensemble_git::scratch::{Scratch, private_dir};
use ensemble_host::Environment;
use ensemble_process::disk::on_disk;

use crate::config::Config;

pub use absent::absent_in_worktree;
pub(crate) use ensemble_git::difference::DiffPart;
pub(crate) use orders::{Orders, failed};
pub use place::OLDEST_GIT;
pub(crate) use place::{Entry, Place};
pub(crate) use turns::Held as Turn;

use turns::Turns;
use worktree::Worktrees;

/// The working directories of this runner. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Workplaces(Arc<Shared>);

struct Shared {
    git: Git,
    turns: Turns,
    worktrees: Worktrees,
    /// Attempts that wait for their turn.
    waiting: Arc<()>,
    /// Files of comparisons that are under way. Emptied when a runner starts.
    scratch: PathBuf,
}

impl Workplaces {
    /// # Errors
    /// The folders in the state directory cannot be made.
    pub(crate) fn open(config: &Config) -> io::Result<Self> {
        let state = config.state_dir.canonicalize()?;
        let scratch = state.join("scratch");
        if let Err(error) = fs::remove_dir_all(&scratch)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let folder = state.join("worktrees");
        for path in [&scratch, &folder] {
            private_dir(path)?;
        }
        let shared = Shared {
            git: Git::new(&config.environment, Some(scratch.join("gitconfig"))),
            turns: Turns::default(),
            worktrees: Worktrees::new(folder),
            waiting: Arc::default(),
            scratch,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Says at the start what cannot be done with the git of this machine, and not only when it is needed.
    pub(crate) async fn look_at_git(self) {
        let git = self.0.git.version().await;
        let (major, minor) = OLDEST_GIT;
        match git {
            Some(version) if version >= OLDEST_GIT => {}
            Some((its_major, its_minor)) => tracing::warn!(
                "git is {its_major}.{its_minor} here. Tasks in worktrees are refused, because their changes could not be applied: that needs git {major}.{minor}"
            ),
            None => tracing::warn!(
                "git cannot be run here. Tasks in worktrees are refused, and no task says what it has changed"
            ),
        }
    }

    /// How many worktrees are kept until their owner discards them, and how many can be. `None`: that cannot be read.
    pub(crate) async fn places(&self) -> Option<(usize, usize)> {
        let shared = self.0.clone();
        on_disk(move || shared.worktrees.places()).await.ok()
    }

    /// How many attempts wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        Arc::strong_count(&self.0.waiting).saturating_sub(1)
    }

    /// Counts an attempt that waits, until this is dropped.
    pub(crate) fn count_waiting(&self) -> Arc<()> {
        self.0.waiting.clone()
    }

    fn new_scratch(&self) -> io::Result<Scratch> {
        let path = self.0.scratch.join(ensemble_types::ids::LeaseId::generate().to_string());
        Scratch::new(path)
    }
}

/// The version of git on this machine, major and minor. `None`: it is missing, or does not say its version. With a version before
/// [`OLDEST_GIT`] no task works in a worktree.
pub async fn git_version(environment: &Environment) -> Option<(u32, u32)> {
    Git::new(environment, None).version().await
}

/// How many files of the git working tree around a directory have changes that are not committed. `None` outside of git.
pub async fn uncommitted_files(directory: &Path, environment: &Environment) -> Option<u32> {
    let repository = Repository::find(&Git::new(environment, None), directory).await?;
    worktree::uncommitted(&repository).await.ok()
}
