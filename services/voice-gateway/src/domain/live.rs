//! The live state: who is in the room, and what follows when participants join and leave.

use std::time::Duration;

use ensemble_types::time::Timestamp;
use ensemble_types::voice::VoiceEndReason as EndReason;
use serde::{Deserialize, Serialize};

use super::state::{End, Event, Refused, Rules, Sid, State};

/// Longer than it takes to ask an agent whether it is there, so that it is not asked twice at once.
const QUESTION: Duration = Duration::from_secs(10);

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
    /// `departed`: a stay whose end was reported before its beginning.
    Awaited {
        departed: Option<(Sid, bool)>,
    },
    Present {
        sid: Sid,
        since: Timestamp,
    },
    /// `departed`: the stay that LiveKit reported as over. A person who is only missing in a list may still be there.
    Away {
        since: Timestamp,
        departed: Option<Sid>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Agent {
    /// `said_ready`: it reported that it is ready before LiveKit reported that it joined. `departed`: the last stay that
    /// is over.
    Awaited {
        check_at: Timestamp,
        said_ready: bool,
        departed: Option<Sid>,
    },
    Joined {
        identity: String,
        sid: Sid,
        since: Timestamp,
        ask_at: Timestamp,
    },
    Ready {
        identity: String,
        sid: Sid,
        since: Timestamp,
        ready_at: Timestamp,
        /// By when its next heartbeat is due. `None`: it has sent none, and LiveKit alone says that it is gone.
        #[serde(default)]
        beat_by: Option<Timestamp>,
    },
}

impl Live {
    pub(super) fn new(room_sid: Sid, now: Timestamp, rules: &Rules) -> Self {
        Self {
            room_sid,
            room_created_at: now,
            human: Human::Awaited { departed: None },
            agent: Agent::Awaited { check_at: now.plus(rules.agent_join), said_ready: false, departed: None },
            active_at: None,
            redispatches: 0,
        }
    }

    pub(super) fn next(mut self, event: Event, now: Timestamp, rules: &Rules) -> Result<State, Refused> {
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
            Event::AgentLeft { sid } if self.agent.sid() == Some(&sid) => {
                self.lose_agent(Some(sid), now.plus(rules.agent_gone), (now, rules));
            }
            Event::AgentUnseen { sid } if self.agent.sid() == Some(&sid) => {
                self.lose_agent(None, now.plus(rules.agent_gone), (now, rules));
            }
            Event::AgentBeat | Event::ProbeBegun => self.agent = self.agent.expected(event, now, rules)?,
            // LiveKit lists it for a while, so its stay counts as over.
            Event::AgentSilent { sid, expected } if self.agent.is_overdue(&sid, expected) => {
                self.lose_agent(Some(sid), now, (now, rules));
            }
            // The end of a stay was reported before its beginning.
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
            Event::WatchBegun => match self.agent {
                Agent::Awaited { check_at, said_ready, departed } if check_at <= now => {
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
            // The start was answered with an error although its commit may have happened.
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
            // The webhook of the arrival came after the webhook of the departure.
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

    fn lose_agent(&mut self, departed: Option<Sid>, check_at: Timestamp, (now, rules): (Timestamp, &Rules)) {
        if let Agent::Ready { ready_at, .. } = self.agent
            && now.since(ready_at) >= rules.agent_stable
        {
            self.redispatches = 0;
        }
        self.agent = Agent::Awaited { check_at, said_ready: false, departed };
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

/// The state is stored as JSON, which has milliseconds. This one is compared with what was stored.
fn as_stored(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.micros() - at.micros() % 1_000)
}

impl Agent {
    fn joined(self, identity: String, sid: Sid, now: Timestamp, rules: &Rules) -> Result<Self, Refused> {
        let ask_at = now.plus(rules.agent_ask);
        match self {
            Self::Awaited { departed: Some(ref gone), .. } if *gone == sid => Err(Refused),
            Self::Awaited { said_ready: true, .. } => {
                Ok(Self::Ready { identity, sid, since: now, ready_at: now, beat_by: None })
            }
            Self::Awaited { said_ready: false, .. } => Ok(Self::Joined { identity, sid, since: now, ask_at }),
            // The newest agent is used; an older one of the same dispatch is leaving.
            Self::Joined { sid: ref old, .. } | Self::Ready { sid: ref old, .. } if *old != sid => {
                Ok(Self::Joined { identity, sid, since: now, ask_at })
            }
            Self::Joined { .. } | Self::Ready { .. } => Err(Refused),
        }
    }

    fn ready(self, now: Timestamp) -> Result<Self, Refused> {
        match self {
            Self::Awaited { check_at, said_ready: false, departed } => {
                Ok(Self::Awaited { check_at, said_ready: true, departed })
            }
            Self::Joined { identity, sid, since, .. } => {
                Ok(Self::Ready { identity, sid, since, ready_at: now, beat_by: None })
            }
            Self::Awaited { said_ready: true, .. } | Self::Ready { .. } => Err(Refused),
        }
    }

    /// A heartbeat, or the question whether the agent is there. Only an agent that has sent heartbeats is asked.
    fn expected(self, event: Event, now: Timestamp, rules: &Rules) -> Result<Self, Refused> {
        match self {
            Self::Ready { identity, sid, since, ready_at, beat_by }
                if !rules.agent_silent.is_zero()
                    && (event == Event::AgentBeat || beat_by.is_some_and(|by| by <= now)) =>
            {
                let answered = if event == Event::ProbeBegun { QUESTION } else { Duration::ZERO };
                let beat_by = Some(as_stored(now.plus(rules.agent_silent + answered)));
                Ok(Self::Ready { identity, sid, since, ready_at, beat_by })
            }
            _ => Err(Refused),
        }
    }

    /// No heartbeat has come since it was asked.
    fn is_overdue(&self, asked: &Sid, expected: Timestamp) -> bool {
        matches!(self, Self::Ready { sid, beat_by, .. } if sid == asked && *beat_by == Some(expected))
    }

    pub(crate) fn sid(&self) -> Option<&Sid> {
        match self {
            Self::Awaited { .. } => None,
            Self::Joined { sid, .. } | Self::Ready { sid, .. } => Some(sid),
        }
    }

    pub(super) fn departed(&self) -> Option<Sid> {
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

    /// Since when it is in the room. `None`: it is not.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        match self {
            Self::Awaited { .. } => None,
            Self::Joined { since, .. } | Self::Ready { since, .. } => Some(*since),
        }
    }
}
