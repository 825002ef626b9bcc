//! The states of a task, and what the end of an attempt means for its task.

use std::time::Duration;

use ensemble_types::leases::FinishStatus;
use ensemble_types::runs::{TaskError, TaskStatus};

use super::Retry;

/// What happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEvent {
    /// A runner got a lease for it.
    Leased,
    /// The runner reported for the first time. This includes a late report, after the lease expired and before another
    /// one was granted.
    Started,
    Completed,
    Failed,
    /// The attempt failed or was lost, and there will be another.
    Requeued,
    Cancelled,
    /// A task that it depends on did not complete.
    DependencyFailed,
    /// The owner retried the run.
    Retried,
    /// The owner said something more to the agent.
    FollowedUp,
}

/// The state after an event. `None` when the event cannot happen in that state.
pub(crate) fn task_transition(from: TaskStatus, event: TaskEvent) -> Option<TaskStatus> {
    use TaskEvent as E;
    use TaskStatus as S;
    match (from, event) {
        (S::Queued, E::Leased) => Some(S::Dispatching),
        (S::Queued | S::Dispatching | S::Running, E::Started) => Some(S::Running),
        (S::Dispatching | S::Running, E::Completed) => Some(S::Completed),
        // A queued task fails when a machine that it needs is deleted.
        (S::Queued | S::Dispatching | S::Running, E::Failed) => Some(S::Failed),
        (S::Dispatching | S::Running, E::Requeued) => Some(S::Queued),
        (S::Queued | S::Dispatching | S::Running, E::Cancelled) => Some(S::Cancelled),
        (S::Queued, E::DependencyFailed) => Some(S::DependencyFailed),
        (S::Failed | S::Cancelled | S::DependencyFailed, E::Retried) => Some(S::Queued),
        (S::Completed | S::Failed, E::FollowedUp) => Some(S::Queued),
        (S::Queued, E::Completed | E::Requeued | E::Retried | E::FollowedUp)
        | (S::Dispatching | S::Running, E::Leased | E::DependencyFailed | E::Retried | E::FollowedUp)
        | (
            S::Failed | S::Cancelled | S::DependencyFailed,
            E::Leased | E::Started | E::Completed | E::Failed | E::Requeued | E::Cancelled | E::DependencyFailed,
        )
        | (S::Cancelled | S::DependencyFailed, E::FollowedUp)
        | (S::Completed, _) => None,
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The runner reported the end, possibly with an error.
    Reported(FinishStatus, Option<TaskError>),
    /// The lease expired.
    MachineLost,
    /// The runner never reported a start, probably because the response with the lease was lost.
    NeverStarted,
    /// The runner did not stop at the task's timeout.
    TimedOut,
    /// The machine cannot run the task and has not started the agent. When `is_last`, no other machine can run it either.
    Refused { error: TaskError, is_last: bool },
    /// The provider's usage limit is reached on the machine, which waits for `wait`. When `is_last`, the task has waited too often.
    Quota { wait: Duration, is_last: bool },
    /// The task has cost more than it may, or as much and needs another attempt.
    CostLimit(TaskError),
    /// The machine was deleted. Without a need the task goes to another machine.
    MachineDeleted { need: Option<MachineNeed> },
}

/// Why a task cannot go to another machine when its machine is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineNeed {
    /// It names the machine.
    Pinned,
    /// A task that it depends on completed there, and its files are gone with the machine.
    Files,
}

/// What follows for the task from the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) event: TaskEvent,
    pub(crate) error: Option<TaskError>,
    pub(crate) failures: i32,
    pub(crate) losses: i32,
    /// The pause before the next attempt.
    pub(crate) pause: Option<Duration>,
}

/// The code of a report that an attempt was ended because its runner ends. It is no loss: another attempt continues the
/// agent's session.
const HANDED_BACK: &str = "HANDED_BACK";

const STILL_AT_LIMIT: &str = "The provider's usage limit was reached again and again, so the task waits no longer. Retry the run when \
                              the provider can be used.";

/// Decides what follows from the end of an attempt. `failures` and `losses` are the counts before it.
pub(crate) fn attempt_outcome(
    end: AttemptEnd,
    cancelling: bool,
    retry: Retry,
    (failures, losses): (i32, i32),
    max_losses: i32,
) -> Outcome {
    let settled = |event, error| Outcome { event, error, failures, losses, pause: None };
    let failed = |error: TaskError| {
        let failures = failures + 1;
        match retry.pause_after(failures).filter(|_| !cancelling) {
            Some(pause) => {
                let pause = Some(pause).filter(|pause| !pause.is_zero());
                Outcome { event: TaskEvent::Requeued, error: Some(error), failures, losses, pause }
            }
            None => Outcome { event: TaskEvent::Failed, error: Some(error), failures, losses, pause: None },
        }
    };
    let lost = |code: &str, what: &str| {
        let losses = losses + 1;
        let outcome = if losses >= max_losses {
            let message = format!("{losses} {what} while they ran this task.");
            settled(TaskEvent::Failed, Some(task_error(code, &message)))
        } else {
            settled(TaskEvent::Requeued, None)
        };
        Outcome { losses, ..outcome }
    };
    let timeout = || task_error("TIMEOUT", "The attempt took longer than the task's timeout.");
    match end {
        AttemptEnd::Reported(FinishStatus::Completed, _) => settled(TaskEvent::Completed, None),
        AttemptEnd::Reported(FinishStatus::Cancelled, error) if cancelling => settled(TaskEvent::Cancelled, error),
        AttemptEnd::Reported(FinishStatus::Cancelled, Some(error)) if error.code == HANDED_BACK => {
            settled(TaskEvent::Requeued, None)
        }
        // The runner died and came back. Its machine was lost in between.
        AttemptEnd::Reported(FinishStatus::Cancelled, _) => lost("RUNNER_STOPPED", "runners stopped"),
        AttemptEnd::Reported(FinishStatus::Timeout, error) => {
            failed(error.map_or_else(timeout, |error| task_error("TIMEOUT", &error.message)))
        }
        AttemptEnd::Reported(FinishStatus::Failed | FinishStatus::Refused | FinishStatus::Quota, error) => {
            failed(error.unwrap_or_else(|| task_error("FAILED", "The agent's program failed.")))
        }
        AttemptEnd::CostLimit(error) => {
            Outcome { event: TaskEvent::Failed, error: Some(error), failures: failures + 1, losses, pause: None }
        }
        AttemptEnd::MachineLost
        | AttemptEnd::NeverStarted
        | AttemptEnd::TimedOut
        | AttemptEnd::Refused { .. }
        | AttemptEnd::Quota { .. }
        | AttemptEnd::MachineDeleted { .. }
            if cancelling =>
        {
            settled(TaskEvent::Cancelled, None)
        }
        AttemptEnd::TimedOut => failed(timeout()),
        AttemptEnd::NeverStarted | AttemptEnd::MachineDeleted { need: None } => settled(TaskEvent::Requeued, None),
        AttemptEnd::MachineDeleted { need: Some(need) } => settled(TaskEvent::Failed, Some(machine_deleted(need))),
        AttemptEnd::Refused { error, is_last: true } => settled(TaskEvent::Failed, Some(error)),
        AttemptEnd::Refused { is_last: false, .. } | AttemptEnd::Quota { is_last: false, .. } => {
            settled(TaskEvent::Requeued, None)
        }
        AttemptEnd::Quota { is_last: true, .. } => {
            settled(TaskEvent::Failed, Some(task_error("PROVIDER_LIMIT_REACHED", STILL_AT_LIMIT)))
        }
        AttemptEnd::MachineLost => lost("MACHINE_LOST", "machines were lost"),
    }
}

/// The error of a task that needs a machine which was deleted.
pub(crate) fn machine_deleted(need: MachineNeed) -> TaskError {
    let message = match need {
        MachineNeed::Pinned => "The machine that this task is pinned to was deleted.",
        MachineNeed::Files => "The machine with the files of a task that this one depends on was deleted.",
    };
    task_error("MACHINE_DELETED", message)
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
    const EVENTS: [TaskEvent; 9] = [
        TaskEvent::Leased,
        TaskEvent::Started,
        TaskEvent::Completed,
        TaskEvent::Failed,
        TaskEvent::Requeued,
        TaskEvent::Cancelled,
        TaskEvent::DependencyFailed,
        TaskEvent::Retried,
        TaskEvent::FollowedUp,
    ];

    /// A row for each state, a column for each event in the order above; `-` where it cannot happen.
    const TABLE: [[&str; 9]; 7] = [
        ["dispatching", "running", "-", "failed", "-", "cancelled", "dependency_failed", "-", "-"],
        ["-", "running", "completed", "failed", "queued", "cancelled", "-", "-", "-"],
        ["-", "running", "completed", "failed", "queued", "cancelled", "-", "-", "-"],
        ["-", "-", "-", "-", "-", "-", "-", "-", "queued"],
        ["-", "-", "-", "-", "-", "-", "-", "queued", "queued"],
        ["-", "-", "-", "-", "-", "-", "-", "queued", "-"],
        ["-", "-", "-", "-", "-", "-", "-", "queued", "-"],
    ];

    #[test]
    fn every_state_and_event_has_the_expected_transition() {
        for (state, row) in STATES.iter().zip(TABLE) {
            for (event, expected) in EVENTS.iter().zip(row) {
                let found = task_transition(*state, *event).map_or("-", TaskStatus::as_str);
                assert_eq!(found, expected, "{state:?} {event:?}");
            }
        }
    }

    fn reported(status: FinishStatus) -> AttemptEnd {
        AttemptEnd::Reported(status, None)
    }

    #[test]
    fn a_failure_is_retried_as_often_as_the_policy_allows() {
        let twice = Retry { max_attempts: 2, backoff: Duration::from_secs(1), factor: 2.0 };
        let first = attempt_outcome(reported(FinishStatus::Failed), false, twice, (0, 0), 3);
        assert_eq!((first.event, first.pause), (TaskEvent::Requeued, Some(Duration::from_secs(1))));
        let second = attempt_outcome(reported(FinishStatus::Failed), false, twice, (1, 0), 3);
        assert_eq!(second.event, TaskEvent::Failed);
    }

    #[test]
    fn nothing_is_retried_when_the_run_is_being_cancelled() {
        let often = Retry { max_attempts: 9, backoff: Duration::ZERO, factor: 1.0 };
        assert_eq!(attempt_outcome(reported(FinishStatus::Failed), true, often, (0, 0), 3).event, TaskEvent::Failed);
        for end in
            [AttemptEnd::MachineLost, AttemptEnd::NeverStarted, AttemptEnd::TimedOut, reported(FinishStatus::Cancelled)]
        {
            assert_eq!(attempt_outcome(end, true, often, (0, 0), 3).event, TaskEvent::Cancelled);
        }
        assert_eq!(
            attempt_outcome(reported(FinishStatus::Completed), true, often, (0, 0), 3).event,
            TaskEvent::Completed
        );
    }

    #[test]
    fn lost_machines_are_counted_and_lost_responses_are_not() {
        let once = Retry::default();
        let lost = attempt_outcome(AttemptEnd::MachineLost, false, once, (0, 1), 3);
        assert_eq!((lost.event, lost.losses, lost.failures), (TaskEvent::Requeued, 2, 0));
        let last = attempt_outcome(AttemptEnd::MachineLost, false, once, (0, 2), 3);
        assert_eq!((last.event, last.error.unwrap().code.as_str()), (TaskEvent::Failed, "MACHINE_LOST"));
        let never_started = attempt_outcome(AttemptEnd::NeverStarted, false, once, (0, 2), 3);
        assert_eq!((never_started.event, never_started.losses), (TaskEvent::Requeued, 2));
    }

    #[test]
    fn a_runner_that_stopped_is_a_loss_and_one_that_ended_is_none() {
        let stopped =
            |losses| attempt_outcome(reported(FinishStatus::Cancelled), false, Retry::default(), (1, losses), 3);
        let first = stopped(0);
        assert_eq!((first.event, first.error, first.failures, first.losses), (TaskEvent::Requeued, None, 1, 1));
        let last = stopped(2);
        assert_eq!(
            (last.event, last.error.unwrap().code.as_str(), last.losses),
            (TaskEvent::Failed, "RUNNER_STOPPED", 3)
        );
        let handed_back = AttemptEnd::Reported(FinishStatus::Cancelled, Some(task_error("HANDED_BACK", "")));
        let ended = attempt_outcome(handed_back, false, Retry::default(), (1, 2), 3);
        assert_eq!((ended.event, ended.error, ended.failures, ended.losses), (TaskEvent::Requeued, None, 1, 2));
        let for_another_reason = AttemptEnd::Reported(FinishStatus::Cancelled, Some(task_error("AGENT_ENDED", "")));
        assert_eq!(attempt_outcome(for_another_reason, false, Retry::default(), (1, 1), 3).losses, 2);
    }

    #[test]
    fn a_task_that_was_handed_back_fails_when_no_machine_is_left() {
        let refused = |is_last, cancelling| {
            let end = AttemptEnd::Refused { error: task_error("HOST_BUSY", "It is."), is_last };
            attempt_outcome(end, cancelling, Retry { max_attempts: 9, ..Retry::default() }, (1, 2), 3)
        };
        let next = refused(false, false);
        assert_eq!((next.event, next.failures, next.losses, next.pause), (TaskEvent::Requeued, 1, 2, None));
        let last = refused(true, false);
        assert_eq!((last.event, last.error.unwrap().code.as_str()), (TaskEvent::Failed, "HOST_BUSY"));
        assert_eq!(refused(true, true).event, TaskEvent::Cancelled);
    }

    #[test]
    fn a_task_at_the_limit_of_its_provider_waits_and_spends_nothing() {
        let quota = |is_last, cancelling| {
            let end = AttemptEnd::Quota { wait: Duration::from_secs(60), is_last };
            attempt_outcome(end, cancelling, Retry { max_attempts: 9, ..Retry::default() }, (1, 2), 3)
        };
        let next = quota(false, false);
        assert_eq!((next.event, next.failures, next.losses, next.pause), (TaskEvent::Requeued, 1, 2, None));
        let last = quota(true, false);
        assert_eq!((last.event, last.error.unwrap().code.as_str()), (TaskEvent::Failed, "PROVIDER_LIMIT_REACHED"));
        assert_eq!(quota(false, true).event, TaskEvent::Cancelled);
    }

    #[test]
    fn a_task_that_costs_too_much_is_not_retried() {
        let often = Retry { max_attempts: 9, backoff: Duration::ZERO, factor: 1.0 };
        let end = AttemptEnd::CostLimit(task_error("COST_LIMIT_REACHED", "It did."));
        let outcome = attempt_outcome(end, false, often, (1, 2), 3);
        assert_eq!((outcome.event, outcome.failures, outcome.losses), (TaskEvent::Failed, 2, 2));
    }

    #[test]
    fn the_last_loss_is_counted_and_says_how_many_there_were() {
        let lost = |losses| attempt_outcome(AttemptEnd::MachineLost, false, Retry::default(), (4, losses), 3);
        let first = lost(0);
        assert_eq!((first.event, first.losses, first.failures), (TaskEvent::Requeued, 1, 4));
        let last = lost(2);
        assert_eq!((last.losses, last.failures), (3, 4));
        assert!(last.error.unwrap().message.starts_with("3 machines"));
        assert_eq!(
            attempt_outcome(AttemptEnd::MachineLost, false, Retry::default(), (0, 0), 1).event,
            TaskEvent::Failed
        );
    }

    #[test]
    fn a_failure_is_counted_whether_or_not_another_attempt_follows() {
        let twice = Retry { max_attempts: 3, backoff: Duration::ZERO, factor: 2.0 };
        let outcome = |failures| attempt_outcome(reported(FinishStatus::Failed), false, twice, (failures, 1), 3);
        let again = outcome(1);
        assert_eq!((again.event, again.failures, again.losses), (TaskEvent::Requeued, 2, 1));
        assert_eq!(again.pause, None, "a pause of zero is none");
        let last = outcome(2);
        assert_eq!((last.event, last.failures, last.losses, last.pause), (TaskEvent::Failed, 3, 1, None));
    }

    #[test]
    fn the_error_says_why_the_attempt_failed() {
        let error = |end| {
            let outcome = attempt_outcome(end, false, Retry::default(), (0, 0), 3);
            assert_eq!(outcome.event, TaskEvent::Failed);
            outcome.error.map(|error| (error.code, error.message)).unwrap()
        };
        let own = || Some(task_error("BROKEN", "It broke."));
        let pair = |code: &str, message: &str| (code.to_owned(), message.to_owned());
        assert_eq!(error(AttemptEnd::Reported(FinishStatus::Failed, own())), pair("BROKEN", "It broke."));
        assert_eq!(error(AttemptEnd::Reported(FinishStatus::Timeout, own())), pair("TIMEOUT", "It broke."));
        assert_eq!(error(reported(FinishStatus::Failed)).0, "FAILED");
        assert_eq!(error(reported(FinishStatus::Timeout)).0, "TIMEOUT");
        assert_eq!(error(AttemptEnd::TimedOut).0, "TIMEOUT");
        for need in [MachineNeed::Pinned, MachineNeed::Files] {
            assert_eq!(error(AttemptEnd::MachineDeleted { need: Some(need) }).0, "MACHINE_DELETED");
        }
        assert_ne!(machine_deleted(MachineNeed::Pinned).message, machine_deleted(MachineNeed::Files).message);
    }

    #[test]
    fn a_task_leaves_a_deleted_machine_unless_it_needs_it() {
        let often = Retry { max_attempts: 9, backoff: Duration::ZERO, factor: 1.0 };
        let outcome =
            |need, cancelling| attempt_outcome(AttemptEnd::MachineDeleted { need }, cancelling, often, (1, 1), 3);
        let free = outcome(None, false);
        assert_eq!((free.event, free.failures, free.losses), (TaskEvent::Requeued, 1, 1));
        assert_eq!(outcome(Some(MachineNeed::Files), false).event, TaskEvent::Failed, "no attempt can succeed");
        assert_eq!(outcome(Some(MachineNeed::Pinned), true).event, TaskEvent::Cancelled);
    }
}
