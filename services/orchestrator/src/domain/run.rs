//! The life of a run. Its state follows from its tasks, except that somebody may want it to end.

use ensemble_types::runs::RunStatus;

/// What happens to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEvent {
    /// A runner took a task of it.
    Dispatched,
    /// Tasks changed, and not all have ended.
    StillOpen,
    /// All tasks have ended, all of them well.
    AllCompleted,
    /// All tasks have ended, some not well.
    SomeFailed,
    /// The owner wants it to end.
    CancelAsked,
    /// The owner wants new attempts.
    Retried,
}

/// How many tasks are where, as the run's row counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queued: i32,
    pub(crate) running: i32,
    pub(crate) completed: i32,
    pub(crate) failed: i32,
    pub(crate) cancelled: i32,
    /// Of the queued ones, those that wait for nothing but a runner.
    pub(crate) ready: i32,
}

impl Counts {
    /// What the tasks say about their run.
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

/// The state after an event; nothing when the event cannot happen in that state.
pub(crate) fn run_transition(from: RunStatus, event: RunEvent) -> Option<RunStatus> {
    use RunEvent as E;
    use RunStatus as S;
    match (from, event) {
        (S::Queued | S::Running, E::Dispatched) => Some(S::Running),
        (S::Queued, E::StillOpen) => Some(S::Queued),
        (S::Running, E::StillOpen) => Some(S::Running),
        (S::Queued | S::Running, E::AllCompleted) => Some(S::Completed),
        (S::Queued | S::Running, E::SomeFailed) => Some(S::Failed),
        (S::Queued | S::Running | S::Canceling, E::CancelAsked) => Some(S::Canceling),
        // An attempt whose runner comes back late takes its task up again.
        (S::Canceling, E::Dispatched | E::StillOpen) => Some(S::Canceling),
        // A run whose cancel was accepted ends cancelled, whatever its tasks came to.
        (S::Canceling, E::AllCompleted | E::SomeFailed) => Some(S::Cancelled),
        // Asking again changes nothing.
        (S::Completed | S::Failed | S::Cancelled, E::CancelAsked) => Some(from),
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
        RunEvent::CancelAsked,
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
    fn every_state_meets_every_event() {
        for (state, row) in STATES.iter().zip(TABLE) {
            for (event, expected) in EVENTS.iter().zip(row) {
                let found = run_transition(*state, *event).map_or("-", RunStatus::as_str);
                assert_eq!(found, expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn only_a_retry_leads_out_of_an_end() {
        for state in STATES.into_iter().filter(|state| state.is_terminal()) {
            for event in EVENTS {
                let left = run_transition(state, event).is_some_and(|next| next != state);
                assert_eq!(left, event == RunEvent::Retried, "{state:?} {event:?}");
            }
        }
    }
}
