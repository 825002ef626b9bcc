//! Turns an observation of LiveKit into the events that webhooks did not deliver.

use ensemble_types::time::Timestamp;

use super::session::VoiceSession;
use super::state::{Agent, Event, Human, Rules, Sid};

/// A participant as LiveKit lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) identity: String,
    pub(crate) sid: Sid,
    pub(crate) is_agent: bool,
    /// Media flows. Before that the participant may still fail to connect.
    pub(crate) is_active: bool,
    /// It set the attribute `voice.ready`.
    pub(crate) says_ready: bool,
}

/// The participants of a room, and when LiveKit was asked.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) asked_at: Timestamp,
    pub(crate) participants: Vec<Seen>,
}

impl VoiceSession {
    /// The events that lead from the record to what was observed. An absence counts only for a participant that has had
    /// time to be listed.
    pub(crate) fn differences(&self, seen: &Observation, rules: &Rules) -> Vec<Event> {
        let Some(live) = self.state.live() else { return Vec::new() };
        let settled = |since: Timestamp| since.plus(rules.settle) <= seen.asked_at;
        let active = || seen.participants.iter().filter(|one| one.is_active);
        let room = || live.room_sid.clone();
        let mut events = Vec::new();

        let human = active().find(|one| !one.is_agent && one.identity == self.human_identity);
        match (&live.human, human) {
            (Human::Present { sid, .. }, Some(there)) if *sid == there.sid => {}
            (Human::Present { sid, since }, None) => {
                if settled(*since) {
                    events.push(Event::HumanUnseen { sid: sid.clone() });
                }
            }
            (Human::Away { since, .. }, Some(there)) => {
                if settled(*since) {
                    events.push(Event::HumanJoined { room: room(), sid: there.sid.clone() });
                }
            }
            (_, Some(there)) => events.push(Event::HumanJoined { room: room(), sid: there.sid.clone() }),
            (_, None) => {}
        }

        let known = live.agent.sid();
        // One that has died is listed for a while.
        let departed = live.agent.departed();
        let agents = || active().filter(|one| one.is_agent && Some(&one.sid) != departed.as_ref());
        let still_there = agents().find(|one| Some(&one.sid) == known);
        match (&live.agent, still_there.or_else(|| agents().next())) {
            (Agent::Joined { sid, since, .. } | Agent::Ready { sid, since, .. }, None) => {
                if settled(*since) {
                    events.push(Event::AgentUnseen { sid: sid.clone() });
                }
            }
            (agent, Some(there)) => {
                if agent.sid() != Some(&there.sid) {
                    events.push(Event::AgentJoined {
                        room: room(),
                        identity: there.identity.clone(),
                        sid: there.sid.clone(),
                    });
                }
                if there.says_ready {
                    events.push(Event::AgentReady);
                }
            }
            (Agent::Awaited { .. }, None) => {}
        }
        events
    }
}
