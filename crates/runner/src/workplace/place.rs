//! The place of one attempt: from the turn in its directory to what it changed there.

use std::path::PathBuf;

use ensemble_types::leases::Lease;
use ensemble_types::runs::Isolation;

use super::difference::{Changed, compare};
use super::git::GitError;
use super::repository::Repository;
use super::snapshot::{self, Snapshot, Target};
use super::turns::Held;
use super::worktree::{Base, NoWorktree, State, Worktree, commit_all};
use super::{Scratch, Workplaces};
use crate::guard::Directory;
use crate::provider::Outcome;

/// Where an attempt wants to work.
pub(crate) struct Entry {
    directory: Directory,
    repository: Option<Repository>,
    /// What nobody else may work in meanwhile.
    turn: Option<PathBuf>,
}

/// Where an attempt works, until this is dropped.
pub(crate) struct Place {
    pub(crate) directory: Directory,
    _turn: Option<Held>,
    kind: Kind,
}

enum Kind {
    /// Nothing is compared: outside of git, or others work there as well.
    Plain,
    /// In the person's working tree.
    Shared {
        repository: Repository,
        scratch: Scratch,
        before: Snapshot,
    },
    Worktree(Box<(Worktree, Repository)>),
}

impl Workplaces {
    /// Finds out what an attempt has to wait for. The runner's own folders belong to no repository around them.
    pub(crate) async fn entry(&self, lease: &Lease, directory: Directory, is_own: bool) -> Entry {
        let path = directory.root.join(&directory.below);
        let repository = if is_own { None } else { Repository::find(&self.0.git, &path).await };
        let turn = match (lease.isolation, &repository) {
            (Isolation::Shared, _) => None,
            (Isolation::Worktree, _) => Some(self.0.worktrees.folder_of(lease.task_id)),
            (Isolation::None, Some(repository)) => Some(repository.top.clone()),
            (Isolation::None, None) => Some(path),
        };
        Entry { directory, repository, turn }
    }

    /// The turn of an attempt, if it need not wait.
    pub(crate) fn try_turn(&self, entry: &Entry) -> Option<Option<Held>> {
        match &entry.turn {
            None => Some(None),
            Some(path) => self.0.turns.try_take(path).map(Some),
        }
    }

    /// Waits for the turn of an attempt.
    pub(crate) async fn turn(&self, entry: &Entry) -> Option<Held> {
        match &entry.turn {
            None => None,
            Some(path) => Some(self.0.turns.take(path).await),
        }
    }

    /// Prepares the place of an attempt that has its turn.
    ///
    /// # Errors
    /// The machine cannot run the task.
    pub(crate) async fn enter(&self, lease: &Lease, entry: Entry, turn: Option<Held>) -> Result<Place, Outcome> {
        let Entry { directory, repository, .. } = entry;
        let (directory, kind) = match (lease.isolation, repository) {
            (Isolation::Worktree, Some(source)) => self.worktree(lease, directory, source).await?,
            (Isolation::Worktree, None) => {
                let message = "The working directory is not in a git working tree, so the task cannot have a worktree.";
                return Err(Outcome::refused("WORKING_DIRECTORY_NOT_GIT", message.to_owned()));
            }
            (Isolation::None, Some(repository)) => (directory, self.compared(repository).await),
            (Isolation::None, None) | (Isolation::Shared, _) => (directory, Kind::Plain),
        };
        Ok(Place { directory, _turn: turn, kind })
    }

    async fn compared(&self, repository: Repository) -> Kind {
        let before = async {
            let scratch = self.new_scratch()?;
            let before = snapshot::take(&repository, Target::Scratch(&scratch)).await?;
            Ok::<_, GitError>((scratch, before))
        };
        match before.await {
            Ok((scratch, before)) => Kind::Shared { repository, scratch, before },
            Err(error) => {
                tracing::warn!(path = %repository.top.display(), "Cannot compare a working tree, so it is not known what changes: {error}");
                Kind::Plain
            }
        }
    }

    async fn worktree(
        &self,
        lease: &Lease,
        directory: Directory,
        source: Repository,
    ) -> Result<(Directory, Kind), Outcome> {
        let base = match (lease.base_task, lease.base.as_deref()) {
            (Some(task), _) => Base::Task(task),
            (None, name) => Base::Ref(name.unwrap_or("HEAD")),
        };
        let (git, turns) = (&self.0.git, &self.0.turns);
        let prepared = self.0.worktrees.prepare(git, turns, &source, (lease.task_id, base)).await;
        let worktree = prepared.map_err(|error| match error {
            NoWorktree::Full => Outcome::refused(
                "HOST_BUSY",
                "This machine keeps 32 worktrees with changes, and no more. Apply or discard some of them.".to_owned(),
            ),
            NoWorktree::NoBase(why) => {
                Outcome::refused("WORKING_DIRECTORY_NO_BASE", format!("There is no commit to begin with: {why}."))
            }
            NoWorktree::Git(error) => Outcome::refused(
                "WORKING_DIRECTORY_NO_WORKTREE",
                format!("The machine cannot make a git worktree: {error}."),
            ),
        })?;
        let own = Repository::open(git, worktree.tree.clone(), worktree.git_dir.clone()).await;
        let own = own.map_err(|error| Outcome::refused("WORKING_DIRECTORY_NO_WORKTREE", format!("{error}.")))?;
        let path = directory.root.join(&directory.below);
        let below = path.strip_prefix(&source.top).map(PathBuf::from).unwrap_or_default();
        if !worktree.tree.join(&below).is_dir() {
            let message = format!("The worktree has no directory {}, because it is not committed.", below.display());
            return Err(Outcome::refused("WORKING_DIRECTORY_NOT_FOUND", message));
        }
        let directory = Directory { root: worktree.tree.clone(), below };
        Ok((directory, Kind::Worktree(Box::new((worktree, own)))))
    }

    /// What an attempt changed in its place. `None` when it is not known. No process of the attempt runs any more.
    pub(crate) async fn changes(&self, place: &Place) -> Option<Changed> {
        let found = match &place.kind {
            Kind::Plain => return None,
            Kind::Shared { repository, scratch, before } => {
                async {
                    let repository = repository.again().await?;
                    let after = snapshot::take(&repository, Target::Scratch(scratch)).await?;
                    compare(&repository, Target::Scratch(scratch), (before, &after)).await
                }
                .await
            }
            Kind::Worktree(of) => self.changes_of_worktree(&of.0, &of.1).await,
        };
        found.inspect_err(|error| tracing::warn!("It is not known what an attempt changed: {error}")).ok()
    }

    async fn changes_of_worktree(&self, worktree: &Worktree, own: &Repository) -> Result<Changed, GitError> {
        let own = own.again().await?;
        let (before, after) = commit_all(&own, worktree).await?;
        let mut changed = compare(&own, Target::Own, (&before, &after)).await?;
        (changed.report.kept, changed.report.uncommitted) = (true, worktree.uncommitted);
        let state = if changed.report.file_count > 0 { State::Kept } else { State::Unchanged };
        self.0.worktrees.save(&Worktree { state, ..worktree.clone() })?;
        Ok(changed)
    }
}
