//! What a session wants done and when, so that one timer serves all of its deadlines.

use ensemble_types::time::Timestamp;

use super::session::VoiceSession;
use super::state::{Agent, Event, Human, Rules, State};

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// An event that time alone brings about.
    Let(Event),
    /// Look whether the agent is there; dispatch it again if it is not.
    Watch,
    /// The agent came and never said that it is ready: look at its attributes.
    AskReady,
    DeleteRoom,
}

impl VoiceSession {
    /// When this session wants to be looked at next. `None`: never again.
    pub(crate) fn due_at(&self, rules: &Rules) -> Option<Timestamp> {
        match &self.state {
            State::Creating { give_up_at } => Some(*give_up_at),
            State::Live(_) => self.deadlines(rules).into_iter().map(|(at, _)| at).min(),
            State::Ending { delete_at, .. } => Some(*delete_at),
            State::Over { .. } => None,
        }
    }

    /// The most urgent of what is due.
    pub(crate) fn duty(&self, now: Timestamp, rules: &Rules) -> Option<Duty> {
        match &self.state {
            State::Creating { give_up_at } => (*give_up_at <= now).then_some(Duty::Let(Event::StartFailed)),
            State::Live(_) => self.deadlines(rules).into_iter().find(|(at, _)| *at <= now).map(|(_, duty)| duty),
            State::Ending { delete_at, .. } => (*delete_at <= now).then_some(Duty::DeleteRoom),
            State::Over { .. } => None,
        }
    }

    /// All deadlines of a live session, the gravest first.
    fn deadlines(&self, rules: &Rules) -> Vec<(Timestamp, Duty)> {
        let Some(live) = self.state.live() else { return Vec::new() };
        let mut all = vec![(self.expires_at, Duty::Let(Event::Expired))];
        match &live.human {
            Human::Awaited { .. } => {
                all.push((live.room_created_at.plus(rules.human_join), Duty::Let(Event::HumanOverdue)));
            }
            Human::Away { since, .. } => all.push((since.plus(rules.human_return), Duty::Let(Event::HumanOverdue))),
            Human::Present { .. } => {}
        }
        match &live.agent {
            Agent::Awaited { check_at, .. } => all.push((*check_at, Duty::Watch)),
            Agent::Joined { ask_at, .. } => all.push((*ask_at, Duty::AskReady)),
            Agent::Ready { .. } => {}
        }
        all
    }
}
