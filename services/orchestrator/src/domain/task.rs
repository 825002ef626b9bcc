//! The life of a task, and what an attempt that ended means for it.

use std::time::Duration;

use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::{TaskError, TaskStatus};

use super::Retry;

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEvent {
    /// A runner took it.
    Leased,
    /// The runner's first sign of life, also one that comes after the lease ran out and before another was granted.
    Begun,
    Completed,
    Failed,
    /// The attempt failed or was lost, and there will be another.
    Requeued,
    Cancelled,
    /// A task that it needed did not complete.
    DependencyFailed,
    /// The owner wants new attempts.
    Retried,
}

/// The state after an event; nothing when the event cannot happen in that state.
pub(crate) fn task_transition(from: TaskStatus, event: TaskEvent) -> Option<TaskStatus> {
    use TaskEvent as E;
    use TaskStatus as S;
    match (from, event) {
        (S::Queued, E::Leased) => Some(S::Dispatching),
        (S::Queued | S::Dispatching | S::Running, E::Begun) => Some(S::Running),
        (S::Dispatching | S::Running, E::Completed) => Some(S::Completed),
        // Queued: its machine was deleted.
        (S::Queued | S::Dispatching | S::Running, E::Failed) => Some(S::Failed),
        (S::Dispatching | S::Running, E::Requeued) => Some(S::Queued),
        (S::Queued | S::Dispatching | S::Running, E::Cancelled) => Some(S::Cancelled),
        (S::Queued, E::DependencyFailed) => Some(S::DependencyFailed),
        (S::Failed | S::Cancelled | S::DependencyFailed, E::Retried) => Some(S::Queued),
        (S::Queued, E::Completed | E::Requeued | E::Retried)
        | (S::Dispatching | S::Running, E::Leased | E::DependencyFailed | E::Retried)
        | (
            S::Failed | S::Cancelled | S::DependencyFailed,
            E::Leased | E::Begun | E::Completed | E::Failed | E::Requeued | E::Cancelled | E::DependencyFailed,
        )
        | (S::Completed, _) => None,
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The runner's report, with its error if it gave one.
    Reported(FinishStatus, Option<TaskError>),
    /// The lease ran out.
    MachineLost,
    /// The runner never said that it began: the answer with the lease was lost.
    NeverBegun,
    /// The runner did not stop when the time was up.
    TimedOut,
    MachineDeleted {
        pinned: bool,
    },
}

/// What the task becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) event: TaskEvent,
    pub(crate) error: Option<TaskError>,
    pub(crate) failures: i32,
    pub(crate) losses: i32,
    /// Pause before the next attempt.
    pub(crate) pause: Option<Duration>,
}

/// Decides what the end of an attempt means. `failures` and `losses` are those before it.
pub(crate) fn judge(
    ending: Ending,
    cancelling: bool,
    retry: Retry,
    (failures, losses): (i32, i32),
    max_losses: i32,
) -> Verdict {
    let settled = |event, error| Verdict { event, error, failures, losses, pause: None };
    let failed = |error: TaskError| {
        let failures = failures + 1;
        match retry.pause_after(failures).filter(|_| !cancelling) {
            Some(pause) => {
                let pause = Some(pause).filter(|pause| !pause.is_zero());
                Verdict { event: TaskEvent::Requeued, error: Some(error), failures, losses, pause }
            }
            None => Verdict { event: TaskEvent::Failed, error: Some(error), failures, losses, pause: None },
        }
    };
    let timeout = || task_error("TIMEOUT", "The attempt took longer than the task's timeout.");
    match ending {
        Ending::Reported(FinishStatus::Completed, _) => settled(TaskEvent::Completed, None),
        Ending::Reported(FinishStatus::Cancelled, error) if cancelling => settled(TaskEvent::Cancelled, error),
        Ending::Reported(FinishStatus::Cancelled, error) => {
            let message = error.map_or_else(|| "The runner stopped the attempt.".to_owned(), |error| error.message);
            failed(task_error("RUNNER_STOPPED", &message))
        }
        Ending::Reported(FinishStatus::Timeout, error) => {
            failed(error.map_or_else(timeout, |error| task_error("TIMEOUT", &error.message)))
        }
        Ending::Reported(FinishStatus::Failed, error) => {
            failed(error.unwrap_or_else(|| task_error("FAILED", "The provider's program failed.")))
        }
        Ending::MachineLost | Ending::NeverBegun | Ending::TimedOut | Ending::MachineDeleted { .. } if cancelling => {
            settled(TaskEvent::Cancelled, None)
        }
        Ending::TimedOut => failed(timeout()),
        Ending::NeverBegun | Ending::MachineDeleted { pinned: false } => settled(TaskEvent::Requeued, None),
        Ending::MachineDeleted { pinned: true } => settled(TaskEvent::Failed, Some(machine_deleted())),
        Ending::MachineLost if losses + 1 >= max_losses => {
            let message = format!("{} machines in a row went away while they had this task.", losses + 1);
            Verdict { losses: losses + 1, ..settled(TaskEvent::Failed, Some(task_error("MACHINE_LOST", &message))) }
        }
        Ending::MachineLost => Verdict { losses: losses + 1, ..settled(TaskEvent::Requeued, None) },
    }
}

/// Why a task fails whose machine is gone for good.
pub(crate) fn machine_deleted() -> TaskError {
    task_error("MACHINE_DELETED", "The machine that this task is pinned to was deleted.")
}

fn task_error(code: &str, message: &str) -> TaskError {
    TaskError { code: code.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [TaskStatus; 7] = [
        TaskStatus::Queued,
        TaskStatus::Dispatching,
        TaskStatus::Running,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
        TaskStatus::DependencyFailed,
    ];
    const EVENTS: [TaskEvent; 8] = [
        TaskEvent::Leased,
        TaskEvent::Begun,
        TaskEvent::Completed,
        TaskEvent::Failed,
        TaskEvent::Requeued,
        TaskEvent::Cancelled,
        TaskEvent::DependencyFailed,
        TaskEvent::Retried,
    ];

    /// A row for each state, a column for each event in the order above; `-` where it cannot happen.
    const TABLE: [[&str; 8]; 7] = [
        ["dispatching", "running", "-", "failed", "-", "cancelled", "dependency_failed", "-"],
        ["-", "running", "completed", "failed", "queued", "cancelled", "-", "-"],
        ["-", "running", "completed", "failed", "queued", "cancelled", "-", "-"],
        ["-", "-", "-", "-", "-", "-", "-", "-"],
        ["-", "-", "-", "-", "-", "-", "-", "queued"],
        ["-", "-", "-", "-", "-", "-", "-", "queued"],
        ["-", "-", "-", "-", "-", "-", "-", "queued"],
    ];

    #[test]
    fn every_state_meets_every_event() {
        for (state, row) in STATES.iter().zip(TABLE) {
            for (event, expected) in EVENTS.iter().zip(row) {
                let found = task_transition(*state, *event).map_or("-", TaskStatus::as_str);
                assert_eq!(found, expected, "{state:?} {event:?}");
            }
        }
    }

    fn reported(status: FinishStatus) -> Ending {
        Ending::Reported(status, None)
    }

    #[test]
    fn a_failure_is_tried_again_as_often_as_the_policy_says() {
        let twice = Retry { max_attempts: 2, backoff: Duration::from_secs(1), factor: 2.0 };
        let first = judge(reported(FinishStatus::Failed), false, twice, (0, 0), 3);
        assert_eq!((first.event, first.pause), (TaskEvent::Requeued, Some(Duration::from_secs(1))));
        let second = judge(reported(FinishStatus::Failed), false, twice, (1, 0), 3);
        assert_eq!(second.event, TaskEvent::Failed);
        let stopped = judge(reported(FinishStatus::Cancelled), false, twice, (0, 0), 3);
        assert_eq!((stopped.event, stopped.error.unwrap().code.as_str()), (TaskEvent::Requeued, "RUNNER_STOPPED"));
    }

    #[test]
    fn nothing_is_tried_again_when_the_run_is_to_end() {
        let often = Retry { max_attempts: 9, backoff: Duration::ZERO, factor: 1.0 };
        assert_eq!(judge(reported(FinishStatus::Failed), true, often, (0, 0), 3).event, TaskEvent::Failed);
        for ending in [Ending::MachineLost, Ending::NeverBegun, Ending::TimedOut, reported(FinishStatus::Cancelled)] {
            assert_eq!(judge(ending, true, often, (0, 0), 3).event, TaskEvent::Cancelled);
        }
        assert_eq!(judge(reported(FinishStatus::Completed), true, often, (0, 0), 3).event, TaskEvent::Completed);
    }

    #[test]
    fn lost_machines_are_counted_and_lost_answers_are_not() {
        let once = Retry::default();
        let lost = judge(Ending::MachineLost, false, once, (0, 1), 3);
        assert_eq!((lost.event, lost.losses, lost.failures), (TaskEvent::Requeued, 2, 0));
        let last = judge(Ending::MachineLost, false, once, (0, 2), 3);
        assert_eq!((last.event, last.error.unwrap().code.as_str()), (TaskEvent::Failed, "MACHINE_LOST"));
        let unheard = judge(Ending::NeverBegun, false, once, (0, 2), 3);
        assert_eq!((unheard.event, unheard.losses), (TaskEvent::Requeued, 2));
    }
}
