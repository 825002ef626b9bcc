//! The place of one attempt: from the turn in its directory to what it changed there.

use std::io;
use std::path::PathBuf;

use ensemble_git::GitError;
use ensemble_git::difference::{Changed, compare};
use ensemble_git::repository::Repository;
use ensemble_git::scratch::Scratch;
use ensemble_git::snapshot::{self, Snapshot, Target};
use ensemble_process::Directory;
use ensemble_protocol::transcript::bounds;
use ensemble_types::changes::ReportedChanges;
use ensemble_types::ids::TaskId;
use ensemble_types::leases::Lease;
use ensemble_types::runs::Isolation;
use ensemble_types::signatures::digest;
use ensemble_types::text::Text;

use super::shown::Shown;
use super::turns::Held;
use super::worktree::{Base, NoWorktree, State, Worktree, committed};
use super::{Workplaces, absent, remains};
use crate::outcome::Outcome;

const DISTRUSTED: &str = "git does not trust the working directory, because another user owns it";
/// `git merge-tree --write-tree`, with which changes are applied.
pub const OLDEST_GIT: (u32, u32) = (2, 38);
/// The interface accepts 4.
const MOST_NOTES: usize = 4;

/// Where an attempt wants to work.
pub(crate) struct Entry {
    directory: Directory,
    repository: Option<Repository>,
    /// git refuses to work there.
    is_distrusted: bool,
    /// Where no other attempt may work meanwhile.
    turn: Option<PathBuf>,
}

/// Where an attempt works, until this is dropped.
pub(crate) struct Place {
    pub(crate) directory: Directory,
    _turn: Option<Held>,
    kind: Kind,
}

struct Shared {
    repository: Repository,
    scratch: Scratch,
    before: Snapshot,
}

enum Kind {
    /// Nothing is compared: outside of git, or others work there as well.
    Plain,
    /// The working tree could not be read when the attempt began.
    Unread(String),
    /// In the person's working tree.
    Shared(Box<Shared>),
    Worktree(Box<(Worktree, Repository)>),
}

impl Place {
    /// One sentence for each kind of files that the attempt's worktree has in another form than the person's working tree.
    pub(crate) async fn absent(&self) -> Vec<String> {
        match &self.kind {
            Kind::Worktree(of) => absent::in_worktree(&of.1).await,
            Kind::Plain | Kind::Unread(_) | Kind::Shared(_) => Vec::new(),
        }
    }
}

impl Workplaces {
    /// Finds out what an attempt has to wait for. The runner's own folders belong to no repository around them.
    pub(crate) async fn entry(&self, lease: &Lease, directory: Directory, is_own: bool) -> Entry {
        let path = directory.root.join(&directory.below);
        let repository = if is_own { None } else { Repository::find(&self.0.git, &path).await };
        let is_distrusted = repository.is_none() && !is_own && self.0.git.distrusts(&path).await;
        let turn = match (lease.isolation, &repository) {
            (Isolation::Shared, _) => None,
            (Isolation::Worktree, _) => Some(self.0.worktrees.folder_of(lease.task_id)),
            (Isolation::None, Some(repository)) => Some(repository.top.clone()),
            (Isolation::None, None) => Some(path),
        };
        Entry { directory, repository, is_distrusted, turn }
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
        let Entry { directory, repository, is_distrusted, .. } = entry;
        let (directory, kind) = match (lease.isolation, repository) {
            (Isolation::Worktree, Some(source)) => self.worktree(lease, directory, source).await?,
            (Isolation::Worktree, None) if is_distrusted => {
                let path = directory.root.join(&directory.below);
                let message = format!(
                    "{DISTRUSTED}, so the task cannot have a worktree. On the machine: git config --global --add safe.directory {}",
                    path.display()
                );
                return Err(Outcome::refused("WORKING_DIRECTORY_NOT_GIT", message));
            }
            (Isolation::Worktree, None) => {
                let message = "The working directory is not in a git working tree, so the task cannot have a worktree.";
                return Err(Outcome::refused("WORKING_DIRECTORY_NOT_GIT", message.to_owned()));
            }
            (Isolation::None, Some(repository)) => (directory, self.compared(repository).await),
            (Isolation::None, None) if is_distrusted => (directory, Kind::Unread(DISTRUSTED.to_owned())),
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
            Ok((scratch, before)) => Kind::Shared(Box::new(Shared { repository, scratch, before })),
            Err(error) => {
                tracing::warn!(path = %repository.top.display(), "Cannot compare a working tree, so it is not known what changes: {error}");
                Kind::Unread(error.to_string())
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
        if let Some((major, minor)) = git.version().await.filter(|version| *version < OLDEST_GIT) {
            let (oldest_major, oldest_minor) = OLDEST_GIT;
            let message = format!(
                "The machine has git {major}.{minor}, with which the changes of a worktree could not be applied. Install git \
                 {oldest_major}.{oldest_minor} or newer."
            );
            return Err(Outcome::refused("WORKING_DIRECTORY_NO_WORKTREE", message));
        }
        let task_digest = lease.signed.as_ref().map(|signed| digest(&*signed.signed_body));
        let prepared = self.0.worktrees.prepare(git, turns, &source, (lease.task_id, base), task_digest).await;
        let worktree = prepared.map_err(|error| match error {
            NoWorktree::Full => Outcome::refused(
                "HOST_BUSY",
                "This machine keeps 32 worktrees with changes, and no more. Apply or discard some of them: `ensemble discard --all-ended` discards those of all runs that have ended.".to_owned(),
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

    /// An agent is to work in its worktree: what its owner was shown before is not what is there any more.
    ///
    /// # Errors
    /// It cannot be written down, so that the agent must not begin.
    pub(crate) fn forget_shown(&self, place: &Place) -> io::Result<()> {
        let Kind::Worktree(of) = &place.kind else { return Ok(()) };
        self.0.worktrees.save(&Worktree { shown: None, ..of.0.clone() })
    }

    /// The agent could not begin: what its owner was shown is there as it was.
    pub(crate) fn show_again(&self, place: &Place) {
        let Kind::Worktree(of) = &place.kind else { return };
        if let Err(error) = self.0.worktrees.save(&of.0) {
            tracing::error!(task.id = %of.0.task, "Cannot write down that no agent works in a worktree: {error}");
        }
    }

    /// What an attempt changed in its place. `None`: nothing is compared there. No process of the attempt runs any more.
    pub(crate) async fn changes(&self, place: &Place) -> Option<Changed> {
        let found = match &place.kind {
            Kind::Plain => return None,
            Kind::Unread(why) => Err(GitError::Other(why.clone())),
            Kind::Shared(of) => {
                let Shared { repository, scratch, before } = of.as_ref();
                async {
                    let repository = repository.again().await?;
                    let after = snapshot::take(&repository, Target::Scratch(scratch)).await?;
                    compare(&repository, Target::Scratch(scratch), (before, &after)).await
                }
                .await
            }
            Kind::Worktree(of) => self.changes_of_worktree(&of.0, &of.1).await,
        };
        Some(found.unwrap_or_else(|error| self.unknown(place, &error.to_string())))
    }

    /// It is not known what an attempt changed. Its worktree is kept.
    pub(crate) fn unknown(&self, place: &Place, why: &str) -> Changed {
        match &place.kind {
            Kind::Worktree(of) => self.unknown_in(Some(&of.0), why),
            Kind::Plain | Kind::Unread(_) | Kind::Shared(_) => self.unknown_in(None, why),
        }
    }

    /// The report about the worktree of a task whose attempt was killed with its runner. `None`: there is no worktree. Without the report the
    /// server would not know of it, and take no order about it.
    ///
    /// # Errors
    /// The record of the worktree cannot be read.
    pub(crate) fn left(&self, task: TaskId) -> io::Result<Option<ReportedChanges>> {
        let worktree = self.0.worktrees.find(task)?;
        Ok(worktree.map(|worktree| self.unknown_in(Some(&worktree), "the runner was stopped meanwhile").report))
    }

    fn unknown_in(&self, worktree: Option<&Worktree>, why: &str) -> Changed {
        tracing::warn!("It is not known what an attempt changed: {why}");
        let mut changed = Changed::default();
        changed.report.unknown = true;
        let mut notes = vec![format!("It is not known what the task changed: {why}.")];
        if let Some(worktree) = worktree {
            let shown = Some(Shown::of(&changed));
            let worktree = Worktree { state: State::Kept, is_unread: true, shown, ..worktree.clone() };
            (changed.report.kept, changed.report.uncommitted) = (true, worktree.uncommitted);
            notes.push(is_at(&worktree));
            if let Err(error) = self.0.worktrees.save(&worktree) {
                // Its record still says that it is open, so it is looked through before it is removed.
                tracing::error!(task.id = %worktree.task, "Cannot write down that a worktree is kept: {error}");
            }
        }
        changed.report.notes = of_notes(&notes);
        changed
    }

    async fn changes_of_worktree(&self, worktree: &Worktree, own: &Repository) -> Result<Changed, GitError> {
        let own = own.again().await?;
        let (commit, before, after) = committed(&own, worktree).await?;
        let mut notes = remains::find(&own).await?;
        let mut changed = match compare(&own, Target::Own, (&before, &after)).await {
            Ok(changed) => changed,
            Err(error) => {
                notes.push(format!("What is on its branch {} cannot be listed: {error}.", worktree.branch));
                let mut changed = Changed::default();
                changed.report.unknown = true;
                changed
            }
        };
        changed.commit = Some(commit);
        (changed.report.kept, changed.report.uncommitted) = (true, worktree.uncommitted);
        if !notes.is_empty() {
            notes.push(is_at(worktree));
        }
        changed.report.notes = of_notes(&notes);
        let is_unchanged = before.tree == after.tree && notes.is_empty();
        let state = if is_unchanged { State::Unchanged } else { State::Kept };
        let shown = Some(Shown::of(&changed));
        self.0.worktrees.save(&Worktree { state, is_unread: false, shown, ..worktree.clone() })?;
        Ok(changed)
    }
}

fn is_at(worktree: &Worktree) -> String {
    format!("The worktree is kept: {}", worktree.tree.display())
}

/// The last one says where the worktree is.
fn of_notes(notes: &[String]) -> Vec<Text<1, 500>> {
    let first = notes.len().saturating_sub(MOST_NOTES);
    let text = |note: &String| Text::new(bounds::beginning(&note.replace('\0', "\u{fffd}"), 500).0).ok();
    notes.iter().skip(first).filter_map(text).collect()
}
