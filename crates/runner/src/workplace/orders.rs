//! Carries out the owner's orders about worktrees, and reports the results.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ensemble_git::GitError;
use ensemble_git::repository::Repository;
use ensemble_host::wake;
use ensemble_protocol::seal::{TaskAction, TaskOrder};
use ensemble_types::changes::{OrderOutcome, OrderResult};
use ensemble_types::ids::TaskId;
use ensemble_types::leases::{Order, OrderKind};
use ensemble_types::text::Text;
use tokio::sync::Semaphore;

use super::Workplaces;
use super::apply::{Merged, apply};
use super::shown::Shown;
use super::worktree::{State, Worktree, commit_all};
use crate::attempt::{Context, carried_out, signed_order};
use crate::server::ServerError;

/// Orders that are carried out at once. The server repeats the others.
const MOST: u32 = 64;
/// Files that a result names.
const MOST_FILES: usize = 256;

/// The orders that are being carried out. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Orders {
    taken: Arc<Mutex<HashSet<String>>>,
    slots: Arc<Semaphore>,
}

impl Default for Orders {
    fn default() -> Self {
        Self { taken: Arc::default(), slots: Arc::new(Semaphore::new(64)) }
    }
}

impl Orders {
    /// Their ids.
    pub(crate) fn taken(&self) -> Vec<Text<1, 64>> {
        self.lock().iter().filter_map(|id| Text::new(id.clone()).ok()).collect()
    }

    /// Starts to carry an order out, unless that was done.
    pub(crate) fn carry_out(&self, context: &Context, order: Order) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else { return };
        if !self.lock().insert(order.id.clone()) {
            return;
        }
        let (context, orders) = (context.clone(), self.clone());
        tokio::spawn(async move {
            let result = match signed_order(&context, &order).await {
                Err(refused) => refused,
                Ok(wanted) => {
                    let result = context.workplaces.carry_out(order.kind, order.task_id, wanted.as_ref()).await;
                    if let Some(wanted) = &wanted {
                        carried_out(&context, wanted, &result).await;
                    }
                    result
                }
            };
            tracing::info!(order.id = order.id, task.id = %order.task_id, kind = ?order.kind, outcome = ?result.outcome,
                "Carried out an order");
            report(&context, &order.id, &result).await;
            orders.lock().remove(&order.id);
            drop(slot);
        });
    }

    /// Waits until none is carried out any more.
    pub(crate) async fn finished(&self, within: Duration) {
        if tokio::time::timeout(within, self.slots.acquire_many(MOST)).await.is_err() {
            tracing::warn!("Some orders are not carried out yet; the next start gets them again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the result until the server has answered.
async fn report(context: &Context, order: &str, result: &OrderResult) {
    let mut backoff = context.config.timing.backoff();
    let mut woken = context.woken.clone();
    loop {
        let error = match context.server.order_result(order, result).await {
            Ok(()) => return,
            Err(error @ (ServerError::Refused(_) | ServerError::LeaseLost | ServerError::Gap(_))) => {
                return tracing::warn!(order.id = order, "The server does not want the result of an order: {error}");
            }
            Err(error) => error,
        };
        tokio::select! {
            () = tokio::time::sleep(backoff.pause(error.retry_after())) => {}
            () = wake::next(&mut woken) => {}
        }
    }
}

/// Why an order about a worktree is not carried out: it is for another task, or for something that its owner has not seen.
fn refused(worktree: &Worktree, wanted: &TaskOrder) -> Option<OrderResult> {
    if worktree.task_digest.as_deref() != Some(wanted.task_digest.as_str()) {
        return Some(failed(OTHER_TASK));
    }
    if wanted.unseen {
        // Its owner wants it with what was not shown: by an attempt that did not end, for example, or by one whose report was lost.
        return None;
    }
    let seen = wanted.seen.as_deref();
    let why = match worktree.shown.as_ref().filter(|shown| shown.is(seen)) {
        None => CHANGED,
        Some(shown) if wanted.action == TaskAction::Apply && !shown.is_all(seen) => NOT_WHOLE,
        Some(_) => return None,
    };
    Some(OrderResult { outcome: OrderOutcome::Conflicted, ..failed(why) })
}

/// An order that was not carried out.
pub(crate) fn failed(why: &str) -> OrderResult {
    let why = why.replace('\0', "\u{fffd}");
    let reason = Text::new(ensemble_protocol::transcript::bounds::beginning(&why, 500).0).ok();
    OrderResult { outcome: OrderOutcome::Failed, files: Vec::new(), reason }
}

/// The message about an order for another worktree than the present one.
const OTHER_TASK: &str = "It was signed for another task than the one that has this worktree. Nothing was changed.";
const CHANGED: &str = "It has changed since you looked. Nothing was changed: look at it again, or do it with what you have not seen \
                       (--unseen).";
const NOT_WHOLE: &str =
    "A part of what was changed could not be shown, so it is applied only with --unseen. Nothing was changed.";

/// Why an order was not carried out.
enum NotDone {
    /// The branch has something else than what was shown.
    Changed,
    Git(GitError),
}

impl From<GitError> for NotDone {
    fn from(error: GitError) -> Self {
        Self::Git(error)
    }
}

impl From<std::io::Error> for NotDone {
    fn from(error: std::io::Error) -> Self {
        Self::Git(error.into())
    }
}

impl Workplaces {
    /// Waits for its turn, and does it. `wanted`: what the owner has signed, where that counts.
    pub(super) async fn carry_out(&self, kind: OrderKind, task: TaskId, wanted: Option<&TaskOrder>) -> OrderResult {
        let _turn = self.0.turns.take(&self.0.worktrees.folder_of(task)).await;
        if let Some(wanted) = wanted {
            match self.0.worktrees.find(task) {
                Ok(worktree) => {
                    if let Some(refused) = worktree.and_then(|worktree| refused(&worktree, wanted)) {
                        tracing::warn!(task.id = %task, ?kind, reason = ?refused.reason, "An order is not carried out");
                        return refused;
                    }
                }
                Err(error) => return failed(&error.to_string()),
            }
        }
        let done = match kind {
            OrderKind::Apply => self.apply(task, wanted.is_some_and(|wanted| !wanted.unseen)).await,
            OrderKind::Discard => self.discard(task).await.map_err(NotDone::Git),
            OrderKind::Cancel => Ok((OrderOutcome::Failed, Vec::new())),
        };
        let (outcome, files) = match done {
            Ok(done) => done,
            Err(NotDone::Changed) => {
                tracing::warn!(task.id = %task, ?kind, "An order is not carried out: its branch has changed");
                return OrderResult { outcome: OrderOutcome::Conflicted, ..failed(CHANGED) };
            }
            Err(NotDone::Git(error)) => {
                tracing::error!(task.id = %task, ?kind, "Cannot carry out an order: {error}");
                return failed(&error.to_string());
            }
        };
        let files = files.into_iter().filter_map(|file| Text::new(file).ok()).take(MOST_FILES).collect();
        OrderResult { outcome, files, reason: None }
    }

    /// `is_seen`: only what its owner was shown.
    async fn apply(&self, task: TaskId, is_seen: bool) -> Result<(OrderOutcome, Vec<String>), NotDone> {
        let Some(mut worktree) = self.0.worktrees.find(task)? else { return Ok((OrderOutcome::Lost, Vec::new())) };
        if worktree.is_unread {
            self.read_again(&mut worktree).await?;
        }
        // An agent that works there would count the changes as its own.
        let _turn = self.0.turns.take(&worktree.source).await;
        if !worktree.source.is_dir() {
            let (source, branch) = (worktree.source.display(), &worktree.branch);
            let why = format!(
                "{source} is not there any more. The changes are in {}, on the branch {branch}",
                worktree.tree.display()
            );
            return Err(GitError::Other(why).into());
        }
        let source = Repository::open(&self.0.git, worktree.source.clone(), worktree.source_git_dir.clone()).await?;
        let now = source.commit(&format!("refs/heads/{}", worktree.branch)).await?;
        let shown = worktree.shown.as_ref().and_then(Shown::commit);
        if is_seen && now.is_some() && now.as_deref() != shown {
            return Err(NotDone::Changed);
        }
        match apply(&source, &worktree.branch, worktree.applied.as_ref(), &self.new_scratch()?).await? {
            Merged::Applied(applied) => {
                (worktree.state, worktree.applied) = (State::Applied, Some(applied));
                self.0.worktrees.save(&worktree)?;
                Ok((OrderOutcome::Applied, Vec::new()))
            }
            Merged::Conflicted(files) => Ok((OrderOutcome::Conflicted, files)),
            Merged::NoBranch => Ok((OrderOutcome::Lost, Vec::new())),
        }
    }

    /// Brings what is in a worktree onto its branch, which could not be done when its attempt ended.
    async fn read_again(&self, worktree: &mut Worktree) -> Result<(), GitError> {
        let own = Repository::open(&self.0.git, worktree.tree.clone(), worktree.git_dir.clone()).await?;
        commit_all(&own, worktree).await?;
        worktree.is_unread = false;
        self.0.worktrees.save(worktree)?;
        Ok(())
    }

    async fn discard(&self, task: TaskId) -> Result<(OrderOutcome, Vec<String>), GitError> {
        let Some(worktree) = self.0.worktrees.find(task)? else { return Ok((OrderOutcome::Lost, Vec::new())) };
        self.0.worktrees.remove(&self.0.git, &worktree).await?;
        Ok((OrderOutcome::Discarded, Vec::new()))
    }
}
