//! The life of a voice session: every state, every event, and the one function that leads from one to the next.
//!
//! Events come from four sides (the caller, LiveKit's webhooks, what a look at LiveKit shows, and our own timers), late,
//! twice and out of order. An event that says nothing new, or speaks of a room or participant that is not ours any more,
//! is refused, and a refused event changes nothing.

use std::time::Duration;

use ensemble_types::time::Timestamp;
use ensemble_types::voice::{VoiceEndReason as EndReason, VoiceState};
use serde::{Deserialize, Serialize};

/// How long things may take. All of it is configuration.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// From the dispatch of an agent to its arrival.
    pub(crate) agent_join: Duration,
    /// From the agent's loss to the watchdog's look: an agent also leaves when the person does, a moment earlier.
    pub(crate) agent_gone: Duration,
    /// Between two looks at an agent that has come and is not ready.
    pub(crate) agent_ask: Duration,
    /// From the agent's arrival to the moment when texts are sent although it never said that it is ready.
    pub(crate) agent_ready: Duration,
    /// An agent that was ready for this long has earned its re-dispatches back.
    pub(crate) agent_stable: Duration,
    /// How often the agent is dispatched again.
    pub(crate) max_dispatches: u32,
    /// From the room's birth to the person's arrival.
    pub(crate) human_join: Duration,
    /// From the person's loss to the end.
    pub(crate) human_return: Duration,
    /// From the record to LiveKit's answer, all retries included; afterwards whoever was to answer is dead.
    pub(crate) create: Duration,
    /// LiveKit's list lags behind its rooms: what arrived less than this ago may be missing in it.
    pub(crate) settle: Duration,
    /// Between two attempts to delete a room.
    pub(crate) delete_retry: Duration,
}

/// LiveKit's id of one stay of a participant (`PA_…`), or of one life of a room (`RM_…`).
pub(crate) type Sid = String;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The record is written, LiveKit has not answered.
    Creating { give_up_at: Timestamp },
    Live(Live),
    /// Over for everybody; the room may still be there.
    Ending { end: End, delete_at: Timestamp, attempts: u32 },
    /// Over, and LiveKit has confirmed that the room is gone.
    Over { end: End },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) struct Live {
    pub(crate) room_sid: Sid,
    pub(crate) room_created_at: Timestamp,
    pub(crate) human: Human,
    pub(crate) agent: Agent,
    /// When person and agent were first there together.
    pub(crate) active_at: Option<Timestamp>,
    pub(crate) redispatches: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Human {
    /// `departed`: a stay whose end was heard of before its beginning.
    Awaited { departed: Option<(Sid, bool)> },
    Present { sid: Sid, since: Timestamp },
    /// `departed`: the stay that LiveKit said is over; whoever is only missing in a list may be there all the same.
    Away { since: Timestamp, departed: Option<Sid> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Agent {
    /// `said_ready`: it spoke to us before LiveKit told us that it came. `departed`: the last stay that is over.
    Awaited { check_at: Timestamp, said_ready: bool, departed: Option<Sid> },
    Joined { identity: String, sid: Sid, since: Timestamp, ask_at: Timestamp },
    Ready { identity: String, sid: Sid, since: Timestamp, ready_at: Timestamp },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) struct End {
    pub(crate) reason: EndReason,
    pub(crate) active_at: Option<Timestamp>,
    pub(crate) ended_at: Timestamp,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// CreateRoom was answered.
    RoomUp { sid: Sid },
    /// CreateRoom failed for good, or nobody is left who waits for its answer.
    StartFailed,
    HumanJoined { room: Sid, sid: Sid },
    /// `on_purpose`: the person hung up, and was not merely cut off.
    HumanLeft { sid: Sid, on_purpose: bool },
    /// LiveKit's list does not show the person any more.
    HumanUnseen { sid: Sid },
    /// The person has not come, or not come back, in time.
    HumanOverdue,
    AgentJoined { room: Sid, identity: String, sid: Sid },
    AgentReady,
    AgentLeft { sid: Sid },
    /// LiveKit's list does not show the agent any more.
    AgentUnseen { sid: Sid },
    /// The watchdog dispatches the agent once more.
    Redispatched,
    /// The watchdog could not look, and looks again later.
    WatchPostponed,
    /// The agent was looked at and has not said that it is ready.
    AgentAsked,
    /// The watchdog has no attempt left.
    AgentUnavailable,
    StopRequested,
    Replaced,
    Expired,
    /// The room with this sid is gone without our doing.
    RoomGone { sid: Sid },
    /// An attempt to delete the room begins; the next one comes when this one has failed.
    DeleteBegun,
    /// DeleteRoom was answered with yes or with "no such room".
    RoomDeleted,
}

/// The event says nothing new in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event changes nothing in this state")]
pub(crate) struct Refused;

impl State {
    /// The one transition function.
    pub(crate) fn next(self, event: Event, now: Timestamp, rules: &Rules) -> Result<Self, Refused> {
        match self {
            Self::Creating { .. } => match event {
                Event::RoomUp { sid } => Ok(Self::Live(Live::new(sid, now, rules))),
                // A webhook can be faster than CreateRoom's answer, and names the room too.
                Event::AgentJoined { ref room, .. } | Event::HumanJoined { ref room, .. } => {
                    Live::new(room.clone(), now, rules).next(event, now, rules)
                }
                Event::StartFailed => Ok(Self::ending(EndReason::StartFailed, None, now)),
                Event::StopRequested => Ok(Self::ending(EndReason::StopRequested, None, now)),
                Event::Replaced => Ok(Self::ending(EndReason::Replaced, None, now)),
                Event::Expired => Ok(Self::ending(EndReason::Expired, None, now)),
                _ => Err(Refused),
            },
            Self::Live(live) => live.next(event, now, rules),
            Self::Ending { end, delete_at: _, attempts } => match event {
                Event::RoomDeleted | Event::RoomGone { .. } => Ok(Self::Over { end }),
                Event::DeleteBegun => {
                    let wait = rules.delete_retry.saturating_mul(1 << attempts.min(4));
                    Ok(Self::Ending { end, delete_at: now.plus(wait), attempts: attempts.saturating_add(1) })
                }
                _ => Err(Refused),
            },
            Self::Over { .. } => Err(Refused),
        }
    }

    fn ending(reason: EndReason, active_at: Option<Timestamp>, now: Timestamp) -> Self {
        Self::Ending { end: End { reason, active_at, ended_at: now }, delete_at: now, attempts: 0 }
    }

    /// The state on the wire.
    pub(crate) fn name(&self) -> VoiceState {
        match self {
            Self::Creating { .. } => VoiceState::Starting,
            Self::Live(live) if live.active_at.is_some() => VoiceState::Active,
            Self::Live(_) => VoiceState::Starting,
            Self::Ending { end, .. } | Self::Over { end } if end.is_error() => VoiceState::Error,
            Self::Ending { .. } => VoiceState::Stopping,
            Self::Over { .. } => VoiceState::Stopped,
        }
    }

    pub(crate) fn end(&self) -> Option<&End> {
        match self {
            Self::Ending { end, .. } | Self::Over { end } => Some(end),
            Self::Creating { .. } | Self::Live(_) => None,
        }
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        match self {
            Self::Live(live) => Some(live),
            _ => None,
        }
    }

    pub(crate) fn active_at(&self) -> Option<Timestamp> {
        match self {
            Self::Creating { .. } => None,
            Self::Live(live) => live.active_at,
            Self::Ending { end, .. } | Self::Over { end } => end.active_at,
        }
    }
}

impl Live {
    fn new(room_sid: Sid, now: Timestamp, rules: &Rules) -> Self {
        Self {
            room_sid,
            room_created_at: now,
            human: Human::Awaited { departed: None },
            agent: Agent::Awaited { check_at: now.plus(rules.agent_join), said_ready: false, departed: None },
            active_at: None,
            redispatches: 0,
        }
    }

    fn next(mut self, event: Event, now: Timestamp, rules: &Rules) -> Result<State, Refused> {
        match event {
            Event::HumanJoined { room, sid } if room == self.room_sid => return self.human_joined(sid, now),
            Event::HumanLeft { sid, on_purpose } => return self.human_left(sid, on_purpose, now),
            Event::HumanUnseen { sid } => match self.human {
                Human::Present { sid: ref present, .. } if *present == sid => {
                    self.human = Human::Away { since: now, departed: None };
                }
                _ => return Err(Refused),
            },
            Event::HumanOverdue => match self.human {
                Human::Away { .. } => return Ok(self.end(EndReason::Left, now)),
                Human::Awaited { .. } => return Ok(self.end(EndReason::RoomFinished, now)),
                Human::Present { .. } => return Err(Refused),
            },
            Event::AgentJoined { room, identity, sid } if room == self.room_sid => {
                self.agent = self.agent.joined(identity, sid, now, rules)?;
            }
            Event::AgentReady => self.agent = self.agent.ready(now)?,
            Event::AgentLeft { sid } if self.agent.sid() == Some(&sid) => self.lose_agent(Some(sid), now, rules),
            Event::AgentUnseen { sid } if self.agent.sid() == Some(&sid) => self.lose_agent(None, now, rules),
            // It is heard of its end before its beginning.
            Event::AgentLeft { sid } => match self.agent {
                Agent::Awaited { check_at, said_ready, departed: None } => {
                    self.agent = Agent::Awaited { check_at, said_ready, departed: Some(sid) };
                }
                _ => return Err(Refused),
            },
            Event::Redispatched if self.agent.is_awaited() && self.redispatches < rules.max_dispatches => {
                self.redispatches += 1;
                let departed = self.agent.departed();
                self.agent = Agent::Awaited { check_at: now.plus(rules.agent_join), said_ready: false, departed };
            }
            Event::WatchPostponed => match self.agent {
                Agent::Awaited { said_ready, departed, .. } => {
                    self.agent = Agent::Awaited { check_at: now.plus(rules.agent_join / 2), said_ready, departed };
                }
                _ => return Err(Refused),
            },
            Event::AgentAsked => match self.agent {
                Agent::Joined { since, .. } if now.since(since) >= rules.agent_ready => {
                    self.agent = self.agent.ready(now)?;
                }
                Agent::Joined { identity, sid, since, .. } => {
                    self.agent = Agent::Joined { identity, sid, since, ask_at: now.plus(rules.agent_ask) };
                }
                _ => return Err(Refused),
            },
            Event::AgentUnavailable if self.agent.is_awaited() => return Ok(self.end(EndReason::AgentUnavailable, now)),
            // The caller was told that the start failed, although LiveKit's webhooks say that there is a room.
            Event::StartFailed if matches!(self.human, Human::Awaited { departed: None }) => {
                return Ok(self.end(EndReason::StartFailed, now));
            }
            Event::StopRequested => return Ok(self.end(EndReason::StopRequested, now)),
            Event::Replaced => return Ok(self.end(EndReason::Replaced, now)),
            Event::Expired => return Ok(self.end(EndReason::Expired, now)),
            Event::RoomGone { sid } if sid == self.room_sid => return Ok(self.room_gone(now)),
            _ => return Err(Refused),
        }
        Ok(State::Live(self.activated(now)))
    }

    fn human_joined(mut self, sid: Sid, now: Timestamp) -> Result<State, Refused> {
        self.human = match self.human {
            Human::Present { sid: ref present, .. } if *present == sid => return Err(Refused),
            // Word of its arrival comes after word of its departure.
            Human::Away { departed: Some(ref gone), .. } if *gone == sid => return Err(Refused),
            Human::Awaited { departed: Some((gone, on_purpose)) } if gone == sid => {
                if on_purpose {
                    return Ok(State::ending(EndReason::Left, self.active_at, now));
                }
                Human::Away { since: now, departed: Some(gone) }
            }
            _ => Human::Present { sid, since: now },
        };
        Ok(State::Live(self.activated(now)))
    }

    fn human_left(mut self, left: Sid, on_purpose: bool, now: Timestamp) -> Result<State, Refused> {
        match self.human {
            Human::Present { ref sid, .. } if *sid == left => {
                if on_purpose {
                    return Ok(self.end(EndReason::Left, now));
                }
                self.human = Human::Away { since: now, departed: Some(left) };
                Ok(State::Live(self))
            }
            Human::Awaited { departed: None } => {
                self.human = Human::Awaited { departed: Some((left, on_purpose)) };
                Ok(State::Live(self))
            }
            _ => Err(Refused),
        }
    }

    fn lose_agent(&mut self, departed: Option<Sid>, now: Timestamp, rules: &Rules) {
        if let Agent::Ready { ready_at, .. } = self.agent
            && now.since(ready_at) >= rules.agent_stable
        {
            self.redispatches = 0;
        }
        self.agent = Agent::Awaited { check_at: now.plus(rules.agent_gone), said_ready: false, departed };
    }

    fn room_gone(self, now: Timestamp) -> State {
        let reason = if matches!(self.human, Human::Away { .. }) { EndReason::Left } else { EndReason::RoomFinished };
        State::Over { end: End { reason, active_at: self.active_at, ended_at: now } }
    }

    fn end(self, reason: EndReason, now: Timestamp) -> State {
        State::ending(reason, self.active_at, now)
    }

    fn activated(mut self, now: Timestamp) -> Self {
        let together = matches!(self.human, Human::Present { .. }) && matches!(self.agent, Agent::Ready { .. });
        if together && self.active_at.is_none() {
            self.active_at = Some(now);
        }
        self
    }
}

impl Agent {
    fn joined(self, identity: String, sid: Sid, now: Timestamp, rules: &Rules) -> Result<Self, Refused> {
        let ask_at = now.plus(rules.agent_ask);
        match self {
            Self::Awaited { departed: Some(ref gone), .. } if *gone == sid => Err(Refused),
            Self::Awaited { said_ready: true, .. } => Ok(Self::Ready { identity, sid, since: now, ready_at: now }),
            Self::Awaited { said_ready: false, .. } => Ok(Self::Joined { identity, sid, since: now, ask_at }),
            // The newest one speaks; an older one of the same dispatch is on its way out.
            Self::Joined { sid: ref old, .. } | Self::Ready { sid: ref old, .. } if *old != sid => {
                Ok(Self::Joined { identity, sid, since: now, ask_at })
            }
            Self::Joined { .. } | Self::Ready { .. } => Err(Refused),
        }
    }

    fn ready(self, now: Timestamp) -> Result<Self, Refused> {
        match self {
            Self::Awaited { check_at, said_ready: false, departed } => Ok(Self::Awaited { check_at, said_ready: true, departed }),
            Self::Joined { identity, sid, since, .. } => Ok(Self::Ready { identity, sid, since, ready_at: now }),
            Self::Awaited { said_ready: true, .. } | Self::Ready { .. } => Err(Refused),
        }
    }

    pub(crate) fn sid(&self) -> Option<&Sid> {
        match self {
            Self::Awaited { .. } => None,
            Self::Joined { sid, .. } | Self::Ready { sid, .. } => Some(sid),
        }
    }

    fn departed(&self) -> Option<Sid> {
        match self {
            Self::Awaited { departed, .. } => departed.clone(),
            Self::Joined { .. } | Self::Ready { .. } => None,
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited { .. })
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready { .. })
    }
}

impl End {
    pub(crate) fn is_error(&self) -> bool {
        matches!(self.reason, EndReason::AgentUnavailable | EndReason::StartFailed)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
