//! The life of a voice session: every state, every event, and the one function that leads from one to the next.
//!
//! Events come from four sides (the caller, LiveKit's webhooks, what a look at LiveKit shows, and our own timers), late,
//! twice and out of order. An event that says nothing new, or speaks of a room or participant that is not ours any more,
//! is refused, and a refused event changes nothing.

use std::time::Duration;

use ensemble_types::time::Timestamp;
use ensemble_types::voice::{VoiceEndReason as EndReason, VoiceState};
use serde::{Deserialize, Serialize};

pub(crate) use super::live::{Agent, Human, Live};

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
    Creating {
        give_up_at: Timestamp,
    },
    Live(Live),
    /// Over for everybody; the room may still be there.
    Ending {
        end: End,
        delete_at: Timestamp,
        attempts: u32,
    },
    /// Over, and LiveKit has confirmed that the room is gone.
    Over {
        end: End,
    },
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
    RoomUp {
        sid: Sid,
    },
    /// CreateRoom failed for good, or nobody is left who waits for its answer.
    StartFailed,
    HumanJoined {
        room: Sid,
        sid: Sid,
    },
    /// `on_purpose`: the person hung up, and was not merely cut off.
    HumanLeft {
        sid: Sid,
        on_purpose: bool,
    },
    /// LiveKit's list does not show the person any more.
    HumanUnseen {
        sid: Sid,
    },
    /// The person has not come, or not come back, in time.
    HumanOverdue,
    AgentJoined {
        room: Sid,
        identity: String,
        sid: Sid,
    },
    AgentReady,
    AgentLeft {
        sid: Sid,
    },
    /// LiveKit's list does not show the agent any more.
    AgentUnseen {
        sid: Sid,
    },
    /// The watchdog dispatches the agent once more.
    Redispatched,
    /// The watchdog is about to look; should nothing come of it, it looks again later. Of two replicas that want to, one may.
    WatchBegun,
    /// The agent was looked at and has not said that it is ready.
    AgentAsked,
    /// The watchdog has no attempt left.
    AgentUnavailable,
    StopRequested,
    Replaced,
    Expired,
    /// The room with this sid is gone without our doing.
    RoomGone {
        sid: Sid,
    },
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

    pub(super) fn ending(reason: EndReason, active_at: Option<Timestamp>, now: Timestamp) -> Self {
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

impl End {
    pub(crate) fn is_error(&self) -> bool {
        matches!(self.reason, EndReason::AgentUnavailable | EndReason::StartFailed)
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
