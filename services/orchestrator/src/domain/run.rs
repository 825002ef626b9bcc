//! The states of a run. They follow from the states of its tasks, except that the owner can cancel the run.

use ensemble_types::runs::RunStatus;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEvent {
    /// A runner leased one of its tasks.
    Dispatched,
    /// Tasks changed, and some have not ended.
    StillOpen,
    /// All tasks have completed.
    AllCompleted,
    /// All tasks have ended, and some did not complete.
    SomeFailed,
    /// The owner cancelled the run.
    CancelRequested,
    /// The owner retried the run.
    Retried,
}

/// How many tasks of the run are in which state, as the run's row counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queued: i32,
    pub(crate) running: i32,
    pub(crate) completed: i32,
    pub(crate) failed: i32,
    pub(crate) cancelled: i32,
    /// Queued tasks that wait for nothing but a runner.
    pub(crate) ready: i32,
}

impl Counts {
    /// The event that follows from the states of the tasks.
    pub(crate) fn event(&self) -> RunEvent {
        if self.queued + self.running > 0 {
            RunEvent::StillOpen
        } else if self.failed + self.cancelled > 0 {
            RunEvent::SomeFailed
        } else {
            RunEvent::AllCompleted
        }
    }
}

/// The state after an event. `None` when the event cannot happen in that state.
pub(crate) fn run_transition(from: RunStatus, event: RunEvent) -> Option<RunStatus> {
    use RunEvent as E;
    use RunStatus as S;
    match (from, event) {
        (S::Queued | S::Running, E::Dispatched) => Some(S::Running),
        (S::Queued, E::StillOpen) => Some(S::Queued),
        (S::Running, E::StillOpen) => Some(S::Running),
        (S::Queued | S::Running, E::AllCompleted) => Some(S::Completed),
        (S::Queued | S::Running, E::SomeFailed) => Some(S::Failed),
        (S::Queued | S::Running | S::Canceling, E::CancelRequested) => Some(S::Canceling),
        // A runner that reports late can resume its attempt.
        (S::Canceling, E::Dispatched | E::StillOpen) => Some(S::Canceling),
        // Once a cancel was accepted, the run ends cancelled, however its tasks end.
        (S::Canceling, E::AllCompleted | E::SomeFailed) => Some(S::Cancelled),
        // A second cancel changes nothing.
        (S::Completed | S::Failed | S::Cancelled, E::CancelRequested) => Some(from),
        (S::Running | S::Completed | S::Failed | S::Cancelled, E::Retried) => Some(S::Running),
        (S::Queued, E::Retried) => Some(S::Queued),
        (S::Canceling, E::Retried)
        | (S::Completed | S::Failed | S::Cancelled, E::Dispatched | E::StillOpen | E::AllCompleted | E::SomeFailed) => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [RunStatus; 6] = [
        RunStatus::Queued,
        RunStatus::Running,
        RunStatus::Canceling,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Cancelled,
    ];
    const EVENTS: [RunEvent; 6] = [
        RunEvent::Dispatched,
        RunEvent::StillOpen,
        RunEvent::AllCompleted,
        RunEvent::SomeFailed,
        RunEvent::CancelRequested,
        RunEvent::Retried,
    ];

    /// A row for each state, a column for each event in the order above; `-` where it cannot happen.
    const TABLE: [[&str; 6]; 6] = [
        ["running", "queued", "completed", "failed", "canceling", "queued"],
        ["running", "running", "completed", "failed", "canceling", "running"],
        ["canceling", "canceling", "cancelled", "cancelled", "canceling", "-"],
        ["-", "-", "-", "-", "completed", "running"],
        ["-", "-", "-", "-", "failed", "running"],
        ["-", "-", "-", "-", "cancelled", "running"],
    ];

    #[test]
    fn every_state_and_event_has_the_expected_transition() {
        for (state, row) in STATES.iter().zip(TABLE) {
            for (event, expected) in EVENTS.iter().zip(row) {
                let found = run_transition(*state, *event).map_or("-", RunStatus::as_str);
                assert_eq!(found, expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn only_a_retry_leaves_a_terminal_state() {
        for state in STATES.into_iter().filter(|state| state.is_terminal()) {
            for event in EVENTS {
                let left = run_transition(state, event).is_some_and(|next| next != state);
                assert_eq!(left, event == RunEvent::Retried, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn a_run_is_open_while_a_task_is_queued_or_running() {
        let none = Counts::default();
        for (counts, event) in [
            (Counts { queued: 1, ..none }, RunEvent::StillOpen),
            (Counts { running: 1, failed: 1, ..none }, RunEvent::StillOpen),
            (Counts { queued: 1, running: 1, completed: 9, ..none }, RunEvent::StillOpen),
            (Counts { failed: 1, completed: 9, ..none }, RunEvent::SomeFailed),
            (Counts { cancelled: 1, completed: 9, ..none }, RunEvent::SomeFailed),
            (Counts { failed: 1, cancelled: 1, ..none }, RunEvent::SomeFailed),
            (Counts { completed: 9, ..none }, RunEvent::AllCompleted),
        ] {
            assert_eq!(counts.event(), event, "{counts:?}");
        }
    }
}
