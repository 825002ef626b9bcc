//! What a session needs next and when, so that one timer serves all of its deadlines.

use ensemble_types::time::Timestamp;

use super::session::VoiceSession;
use super::state::{Agent, Event, Human, Rules, State};

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DueAction {
    /// Apply an event that the passing of time causes.
    Apply(Event),
    /// Look whether the agent is there; dispatch it again if it is not.
    Watch,
    /// The agent's heartbeats have stopped: ask it whether it is there.
    Probe,
    /// The agent came and has not reported that it is ready: look at its attributes.
    CheckReady,
    DeleteRoom,
}

impl VoiceSession {
    /// The next deadline. `None`: there is none, ever.
    pub(crate) fn due_at(&self, rules: &Rules) -> Option<Timestamp> {
        match &self.state {
            State::Creating { give_up_at, .. } => Some(*give_up_at),
            State::Live(_) => self.deadlines(rules).into_iter().map(|(at, _)| at).min(),
            State::Ending { delete_at, .. } => Some(*delete_at),
            State::Over { .. } => None,
        }
    }

    /// The most urgent action that is due.
    pub(crate) fn due_action(&self, now: Timestamp, rules: &Rules) -> Option<DueAction> {
        match &self.state {
            State::Creating { give_up_at, .. } => (*give_up_at <= now).then_some(DueAction::Apply(Event::StartFailed)),
            State::Live(_) => self.deadlines(rules).into_iter().find(|(at, _)| *at <= now).map(|(_, action)| action),
            State::Ending { delete_at, .. } => (*delete_at <= now).then_some(DueAction::DeleteRoom),
            State::Over { .. } => None,
        }
    }

    /// All deadlines of a live session, the most urgent action first.
    fn deadlines(&self, rules: &Rules) -> Vec<(Timestamp, DueAction)> {
        let Some(live) = self.state.live() else { return Vec::new() };
        let mut all = vec![(self.expires_at, DueAction::Apply(Event::Expired))];
        let overdue = DueAction::Apply(Event::HumanOverdue);
        match &live.human {
            Human::Awaited { .. } => all.push((live.room_created_at.plus(rules.human_join), overdue)),
            Human::Away { since, .. } => all.push((since.plus(rules.human_return), overdue)),
            Human::Present { .. } => {}
        }
        match &live.agent {
            Agent::Awaited { check_at, .. } => all.push((*check_at, DueAction::Watch)),
            Agent::Joined { ask_at, .. } => all.push((*ask_at, DueAction::CheckReady)),
            Agent::Ready { beat_by, .. } => all.extend(beat_by.map(|by| (by, DueAction::Probe))),
        }
        all
    }
}
