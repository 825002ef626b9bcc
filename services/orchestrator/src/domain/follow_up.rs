//! Whether something more can be said to the agent of a task.

use ensemble_types::changes::ChangesState;
use ensemble_types::runs::TaskStatus;

/// Why nothing can be said to the task now. Its text tells the caller what is in the way, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoFollowUp {
    #[error("The task has not begun, or waits for its next attempt. Say this when it has ended.")]
    Waits,
    #[error("The task is running. Wait for its end, or cancel the run and submit another one.")]
    Runs,
    #[error("The task was cancelled. Retry the run first.")]
    Cancelled,
    #[error("The task was never begun, so there is no conversation. Retry the run first.")]
    NotBegun,
    #[error("The agent of this task left no conversation that could go on. Submit a new run.")]
    NoSession,
    #[error("The task is a live session. Say it there: `ensemble prompt`.")]
    Live,
    #[error("The machine with the conversation of this task was deleted. Submit a new run.")]
    MachineDeleted,
    #[error("A task that depends on this one is running with its result. Wait for its end, or cancel the run.")]
    DependentRuns,
    #[error("A task that this one depends on has not completed. Wait for its end, or retry the run.")]
    DependencyOpen,
    #[error("The changes of this task are being applied. Say this when that has ended.")]
    Applying,
    #[error("The worktree of this task was removed. Submit a new run.")]
    WorktreeGone,
}

/// What the decision is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Continuation {
    pub(crate) status: TaskStatus,
    /// The agent's session and the machine that has it are known.
    pub(crate) has_session: bool,
    /// It is a live session, or has begun one.
    pub(crate) is_live: bool,
    /// A task that depends on it runs now. It works with the result that would change.
    pub(crate) dependent_runs: bool,
    /// A task that it depends on has not completed, or not again.
    pub(crate) dependency_open: bool,
    /// What became of the changes of its last attempt.
    pub(crate) changes: ChangesState,
}

impl Continuation {
    pub(crate) fn check(self) -> Result<(), NoFollowUp> {
        match self.status {
            TaskStatus::Queued => Err(NoFollowUp::Waits),
            TaskStatus::Dispatching | TaskStatus::Running => Err(NoFollowUp::Runs),
            TaskStatus::Cancelled => Err(NoFollowUp::Cancelled),
            TaskStatus::DependencyFailed => Err(NoFollowUp::NotBegun),
            TaskStatus::Completed | TaskStatus::Failed if self.is_live => Err(NoFollowUp::Live),
            TaskStatus::Completed | TaskStatus::Failed if !self.has_session => Err(NoFollowUp::NoSession),
            TaskStatus::Completed | TaskStatus::Failed if self.dependent_runs => Err(NoFollowUp::DependentRuns),
            TaskStatus::Completed | TaskStatus::Failed if self.dependency_open => Err(NoFollowUp::DependencyOpen),
            TaskStatus::Completed | TaskStatus::Failed => match self.changes {
                ChangesState::None | ChangesState::Kept | ChangesState::Conflicted | ChangesState::Applied => Ok(()),
                ChangesState::Applying => Err(NoFollowUp::Applying),
                ChangesState::Discarding | ChangesState::Discarded | ChangesState::Lost => {
                    Err(NoFollowUp::WorktreeGone)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_continues_when_it_has_ended_with_a_session_and_nothing_else_uses_it() {
        let good = Continuation {
            status: TaskStatus::Completed,
            has_session: true,
            is_live: false,
            dependent_runs: false,
            dependency_open: false,
            changes: ChangesState::Kept,
        };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Continuation { status: TaskStatus::Failed, ..good }.check(), Ok(()));
        assert_eq!(Continuation { changes: ChangesState::Applied, ..good }.check(), Ok(()), "the worktree is there");
        for (bad, why) in [
            (Continuation { status: TaskStatus::Queued, ..good }, NoFollowUp::Waits),
            (Continuation { status: TaskStatus::Dispatching, ..good }, NoFollowUp::Runs),
            (Continuation { status: TaskStatus::Running, ..good }, NoFollowUp::Runs),
            (Continuation { status: TaskStatus::Cancelled, ..good }, NoFollowUp::Cancelled),
            (Continuation { status: TaskStatus::DependencyFailed, ..good }, NoFollowUp::NotBegun),
            (Continuation { has_session: false, ..good }, NoFollowUp::NoSession),
            (Continuation { is_live: true, ..good }, NoFollowUp::Live),
            (Continuation { dependent_runs: true, ..good }, NoFollowUp::DependentRuns),
            (Continuation { dependency_open: true, ..good }, NoFollowUp::DependencyOpen),
            (Continuation { changes: ChangesState::Applying, ..good }, NoFollowUp::Applying),
            (Continuation { changes: ChangesState::Discarded, ..good }, NoFollowUp::WorktreeGone),
            (Continuation { changes: ChangesState::Discarding, ..good }, NoFollowUp::WorktreeGone),
        ] {
            assert_eq!(bad.check(), Err(why), "{bad:?}");
        }
    }
}
