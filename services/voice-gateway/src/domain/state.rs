//! The life of a voice session: every state, every event, and the one function that leads from one to the next.
//!
//! Events come from four sources: the caller, LiveKit's webhooks, observations of LiveKit, and our own timers. They arrive
//! late, twice and out of order. An event that reports nothing new, or that names a room or participant of the past, is
//! refused. A refused event changes nothing.

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
    /// From the agent's loss to the watchdog's check. An agent also leaves when the person leaves, possibly a moment earlier.
    pub(crate) agent_gone: Duration,
    /// Between two checks of an agent that has joined and is not ready.
    pub(crate) agent_ask: Duration,
    /// From the agent's arrival to the moment when it counts as ready without having reported it.
    pub(crate) agent_ready: Duration,
    /// An agent that was ready for this long resets the count of re-dispatches.
    pub(crate) agent_stable: Duration,
    /// From an agent's heartbeat to the question whether it is still there. Zero: no heartbeats.
    pub(crate) agent_silent: Duration,
    /// How often the agent is dispatched again.
    pub(crate) max_dispatches: u32,
    /// From the room's creation to the person's arrival.
    pub(crate) human_join: Duration,
    /// From the person's loss to the end.
    pub(crate) human_return: Duration,
    /// From the record to LiveKit's answer, including all retries. Afterwards the process that started it has died.
    pub(crate) create: Duration,
    /// LiveKit's lists lag behind: a participant that joined less than this ago may be missing.
    pub(crate) settle: Duration,
    /// Between two attempts to delete a room.
    pub(crate) delete_retry: Duration,
}

/// LiveKit's id of one stay of a participant (`PA_…`), or of one life of a room (`RM_…`).
pub(crate) type Sid = String;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The record is written, and its start has not gone live. Only the start itself leaves this state for `Live`.
    Creating {
        give_up_at: Timestamp,
        /// The agent, when its webhook was faster than the start.
        #[serde(default)]
        early_agent: Option<EarlyAgent>,
    },
    Live(Live),
    /// Ended for its callers; the room may still exist.
    Ending {
        end: End,
        delete_at: Timestamp,
        attempts: u32,
    },
    /// Ended, and LiveKit has confirmed that the room is gone.
    Over {
        end: End,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) struct EarlyAgent {
    pub(crate) room: Sid,
    pub(crate) identity: String,
    pub(crate) sid: Sid,
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
    /// CreateRoom was answered, and the start goes live.
    RoomUp {
        sid: Sid,
    },
    /// The start failed, or its process died.
    StartFailed,
    HumanJoined {
        room: Sid,
        sid: Sid,
    },
    /// `on_purpose`: the person hung up. Otherwise the connection was lost.
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
    /// The agent sent a heartbeat.
    AgentBeat,
    /// Its heartbeat is overdue, and it is about to be asked whether it is there. Of two replicas only one may.
    ProbeBegun,
    /// It did not answer. `expected`: by when a heartbeat was due when it was asked.
    AgentSilent {
        sid: Sid,
        expected: Timestamp,
    },
    /// The watchdog dispatches the agent once more.
    Redispatched,
    /// The watchdog is about to check, and checks again later if nothing comes of it. Of two replicas only one may.
    WatchBegun,
    /// The agent was checked and has not reported that it is ready.
    AgentAsked,
    /// The watchdog has no attempt left.
    AgentUnavailable,
    StopRequested,
    Replaced,
    Expired,
    /// The room with this sid was closed, and not by us.
    RoomGone {
        sid: Sid,
    },
    /// An attempt to delete the room begins; the next one comes when this one has failed.
    DeleteBegun,
    /// DeleteRoom succeeded or was answered with "no such room".
    RoomDeleted,
}

/// The event changes nothing in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event changes nothing in this state")]
pub(crate) struct Refused;

impl State {
    /// The one transition function.
    pub(crate) fn next(self, event: Event, now: Timestamp, rules: &Rules) -> Result<Self, Refused> {
        match self {
            Self::Creating { give_up_at, early_agent } => match event {
                Event::RoomUp { sid } => Ok(Self::up(sid, early_agent, now, rules)),
                // A webhook can be faster than CreateRoom's answer. It must not make the session live, because the start
                // may still fail. It is applied when the start goes live.
                Event::AgentJoined { room, identity, sid } => {
                    let early_agent = Some(EarlyAgent { room, identity, sid });
                    Ok(Self::Creating { give_up_at, early_agent })
                }
                Event::AgentLeft { sid } if early_agent.is_some_and(|agent| agent.sid == sid) => {
                    Ok(Self::Creating { give_up_at, early_agent: None })
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

    fn up(sid: Sid, early_agent: Option<EarlyAgent>, now: Timestamp, rules: &Rules) -> Self {
        let live = Live::new(sid, now, rules);
        let joined = early_agent.and_then(|EarlyAgent { room, identity, sid }| {
            live.clone().next(Event::AgentJoined { room, identity, sid }, now, rules).ok()
        });
        joined.unwrap_or(Self::Live(live))
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
