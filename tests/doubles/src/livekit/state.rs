//! The rooms, their participants, and everything that happened in them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use livekit_api::access_token::Claims;
use livekit_protocol as proto;
use rand::Rng;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::livekit::agents::{self, AgentPlan, Received, Rpc};
use crate::livekit::faults::Faults;
use crate::livekit::webhooks::{Webhooks, unix_seconds};

pub(crate) struct Inner {
    pub(crate) runtime: Handle,
    pub(crate) http: reqwest::Client,
    pub(crate) faults: Faults,
    pub(crate) webhooks: Webhooks,
    /// Whether held calls may continue.
    released: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    rooms: BTreeMap<String, Room>,
    pub(crate) plan: AgentPlan,
    pub(crate) created: Vec<String>,
    pub(crate) dispatched: Vec<String>,
    pub(crate) received: Vec<Received>,
    pub(crate) metadata: HashMap<String, String>,
    pub(crate) calls: HashMap<String, usize>,
    /// How long the last CreateRoom took here, by room.
    pub(crate) took: HashMap<String, Duration>,
}

struct Room {
    sid: String,
    empty_timeout: Duration,
    departure_timeout: Duration,
    participants: BTreeMap<String, Participant>,
    dispatches: Vec<proto::AgentDispatch>,
    /// Since when no person is there, and how long the room may stay without one.
    alone_since: Option<(Instant, Duration)>,
}

#[derive(Clone)]
pub(crate) struct Participant {
    pub(crate) sid: String,
    pub(crate) is_agent: bool,
    pub(crate) rpc: Rpc,
    reports_ready: bool,
    joined_at: i64,
}

/// A room as a test sees it.
#[derive(Clone, Debug)]
pub struct RoomView {
    pub name: String,
    pub sid: String,
    pub participants: Vec<String>,
    pub agents: Vec<String>,
}

/// Why a person cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error("the token is invalid")]
    BadToken,
    #[error("the token has no grant to join a room")]
    NoGrant,
    #[error("there is no such room")]
    NoRoom,
}

/// How a participant leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    HangsUp,
    /// The connection breaks.
    Lost,
    /// It was still connecting.
    Aborted,
}

impl Inner {
    pub(crate) fn new(runtime: Handle) -> Self {
        let http = reqwest::Client::new();
        let webhooks = Webhooks::new(runtime.clone(), http.clone());
        Self {
            runtime,
            http,
            faults: Faults::default(),
            webhooks,
            released: watch::Sender::new(false),
            state: Mutex::default(),
        }
    }

    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn read<T>(&self, f: impl FnOnce(&State) -> T) -> T {
        self.change(|state| f(state))
    }

    pub(crate) fn release(&self) {
        self.released.send_replace(true);
    }

    pub(crate) async fn released(&self) {
        // It fails when the sender is gone, which this holds.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }

    pub(crate) fn views(&self) -> Vec<RoomView> {
        self.read(|state| state.rooms.iter().map(|(name, room)| room.view(name)).collect())
    }

    /// A room of this name; the flag says whether it is new.
    pub(crate) fn create_room(
        &self,
        name: &str,
        empty_timeout: Duration,
        departure_timeout: Duration,
        dispatches: Vec<proto::AgentDispatch>,
    ) -> (proto::Room, bool) {
        let (room, new) = self.change(|state| {
            if let Some(room) = state.rooms.get(name) {
                return (room.listed(name), false);
            }
            let room = Room {
                sid: sid("RM"),
                empty_timeout,
                departure_timeout,
                participants: BTreeMap::new(),
                dispatches,
                alone_since: Some((Instant::now(), empty_timeout)),
            };
            let listed = room.listed(name);
            state.rooms.insert(name.to_owned(), room);
            state.created.push(name.to_owned());
            (listed, true)
        });
        if new {
            self.webhooks.emit("room_started", &room_json(name, &room.sid), None);
        }
        (room, new)
    }

    /// Records a dispatch and lets its agent join.
    pub(crate) fn dispatch(self: &Arc<Self>, room: &str, dispatch: &proto::AgentDispatch) -> bool {
        let room_sid = self.change(|state| {
            let sid = state.rooms.get(room)?.sid.clone();
            state.dispatched.push(room.to_owned());
            state.metadata.insert(room.to_owned(), dispatch.metadata.clone());
            Some(sid)
        });
        let Some(room_sid) = room_sid else { return false };
        agents::dispatch_agent(self, room.to_owned(), room_sid, dispatch.metadata.clone());
        true
    }

    pub(crate) fn with_dispatches<T>(
        &self,
        room: &str,
        f: impl FnOnce(&mut Vec<proto::AgentDispatch>) -> T,
    ) -> Option<T> {
        self.change(|state| state.rooms.get_mut(room).map(|room| f(&mut room.dispatches)))
    }

    pub(crate) fn delete_room(&self, name: &str) -> bool {
        let Some(room) = self.change(|state| state.rooms.remove(name)) else { return false };
        let about = room_json(name, &room.sid);
        for (identity, one) in &room.participants {
            self.webhooks.emit("participant_left", &about, Some(one.json(identity, "ROOM_DELETED")));
        }
        self.webhooks.emit("room_finished", &about, None);
        true
    }

    pub(crate) fn rooms(&self, names: &[String]) -> Vec<proto::Room> {
        self.read(|state| {
            let wanted = |name: &String| names.is_empty() || names.contains(name);
            state.rooms.iter().filter(|(name, _)| wanted(name)).map(|(name, room)| room.listed(name)).collect()
        })
    }

    pub(crate) fn participants(&self, room: &str) -> Vec<proto::ParticipantInfo> {
        self.read(|state| {
            let Some(room) = state.rooms.get(room) else { return Vec::new() };
            room.participants.iter().map(|(identity, one)| one.info(identity)).collect()
        })
    }

    pub(crate) fn participant(&self, room: &str, identity: &str) -> Option<Participant> {
        self.read(|state| state.rooms.get(room)?.participants.get(identity).cloned())
    }

    pub(crate) fn receive(&self, received: Received) {
        self.change(|state| state.received.push(received));
    }

    pub(crate) fn join_human(&self, claims: &Claims) -> Result<String, JoinError> {
        if !claims.video.room_join || claims.sub.is_empty() {
            return Err(JoinError::NoGrant);
        }
        let one = Participant {
            sid: sid("PA"),
            is_agent: false,
            rpc: Rpc::NotRegistered,
            reports_ready: false,
            joined_at: unix_seconds(),
        };
        self.enter(&claims.video.room, &claims.sub, one).then(|| claims.sub.clone()).ok_or(JoinError::NoRoom)
    }

    /// Joins under the identity that the dispatch's metadata names. False when the room that it was sent to is gone.
    pub(crate) fn join_agent(
        &self,
        (room, room_sid): (&str, &str),
        metadata: &str,
        rpc: Rpc,
        reports_ready: bool,
    ) -> bool {
        let named = serde_json::from_str::<Value>(metadata).ok();
        let named = named.and_then(|metadata| metadata.get("agentIdentity")?.as_str().map(str::to_owned));
        let same = self.read(|state| state.rooms.get(room).is_some_and(|found| found.sid == room_sid));
        let one = Participant { sid: sid("PA"), is_agent: true, rpc, reports_ready, joined_at: unix_seconds() };
        same && self.enter(room, &named.unwrap_or_else(|| sid("agent-AJ")), one)
    }

    fn enter(&self, room: &str, identity: &str, one: Participant) -> bool {
        let entered = self.change(|state| {
            let found = state.rooms.get_mut(room)?;
            if !one.is_agent {
                found.alone_since = None;
            }
            let evicted = found.participants.insert(identity.to_owned(), one.clone());
            Some((room_json(room, &found.sid), evicted))
        });
        let Some((about, evicted)) = entered else { return false };
        if let Some(evicted) = evicted {
            self.webhooks.emit("participant_left", &about, Some(evicted.json(identity, "DUPLICATE_IDENTITY")));
        }
        self.webhooks.emit("participant_joined", &about, Some(one.json(identity, "")));
        true
    }

    pub(crate) fn leave(&self, room: &str, identity: &str, how: Leave) {
        let left = self.change(|state| {
            let found = state.rooms.get_mut(room)?;
            let one = found.participants.remove(identity)?;
            if !one.is_agent && found.participants.values().all(|other| other.is_agent) {
                found.alone_since = Some((Instant::now(), found.departure_timeout));
            }
            Some((room_json(room, &found.sid), one))
        });
        let Some((about, one)) = left else { return };
        let (event, reason) = match how {
            Leave::HangsUp => ("participant_left", "CLIENT_INITIATED"),
            Leave::Lost => ("participant_left", "SIGNAL_CLOSE"),
            Leave::Aborted => ("participant_connection_aborted", "JOIN_FAILURE"),
        };
        self.webhooks.emit(event, &about, Some(one.json(identity, reason)));
    }

    pub(crate) fn silence_agents(&self, room: &str) {
        self.change(|state| {
            let participants = state.rooms.get_mut(room).map(|room| room.participants.values_mut());
            participants.into_iter().flatten().filter(|one| one.is_agent).for_each(|one| one.rpc = Rpc::Silent);
        });
    }

    pub(crate) fn kill_agents(&self, room: &str) {
        for agent in self.views().into_iter().filter(|view| view.name == room).flat_map(|view| view.agents) {
            self.leave(room, &agent, Leave::Lost);
        }
    }
}

/// LiveKit closes rooms in which only agents are left, after the time that their makers chose.
pub(crate) fn close_idle_rooms(inner: Arc<Inner>) {
    let runtime = inner.runtime.clone();
    runtime.spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        loop {
            tick.tick().await;
            let idle: Vec<String> = inner.read(|state| {
                let over = |room: &Room| room.alone_since.is_some_and(|(since, bound)| since.elapsed() > bound);
                state.rooms.iter().filter(|(_, room)| over(room)).map(|(name, _)| name.clone()).collect()
            });
            for name in idle {
                inner.delete_room(&name);
            }
        }
    });
}

impl Room {
    fn view(&self, name: &str) -> RoomView {
        let of = |agents: bool| {
            self.participants
                .iter()
                .filter(|(_, one)| one.is_agent == agents)
                .map(|(identity, _)| identity.clone())
                .collect()
        };
        RoomView { name: name.to_owned(), sid: self.sid.clone(), participants: of(false), agents: of(true) }
    }

    fn listed(&self, name: &str) -> proto::Room {
        proto::Room {
            sid: self.sid.clone(),
            name: name.to_owned(),
            empty_timeout: u32::try_from(self.empty_timeout.as_secs()).unwrap_or(u32::MAX),
            departure_timeout: u32::try_from(self.departure_timeout.as_secs()).unwrap_or(u32::MAX),
            ..Default::default()
        }
    }
}

impl Participant {
    fn info(&self, identity: &str) -> proto::ParticipantInfo {
        let kind =
            if self.is_agent { proto::participant_info::Kind::Agent } else { proto::participant_info::Kind::Standard };
        let ready = self.reports_ready.then(|| ("voice.ready".to_owned(), "1".to_owned()));
        proto::ParticipantInfo {
            sid: self.sid.clone(),
            identity: identity.to_owned(),
            state: proto::participant_info::State::Active as i32,
            kind: kind as i32,
            joined_at: self.joined_at,
            attributes: ready.into_iter().collect(),
            ..Default::default()
        }
    }

    /// As protojson writes it: default values are left out.
    fn json(&self, identity: &str, reason: &str) -> Value {
        let mut json =
            json!({ "sid": self.sid, "identity": identity, "state": "ACTIVE", "joinedAt": self.joined_at.to_string() });
        if let Some(object) = json.as_object_mut() {
            if self.is_agent {
                object.insert("kind".to_owned(), "AGENT".into());
            }
            if !reason.is_empty() {
                object.insert("disconnectReason".to_owned(), reason.into());
            }
        }
        json
    }
}

fn room_json(name: &str, sid: &str) -> Value {
    json!({ "name": name, "sid": sid, "creationTime": unix_seconds().to_string() })
}

pub(crate) fn sid(prefix: &str) -> String {
    format!("{prefix}_{:012x}", rand::thread_rng().r#gen::<u64>() >> 16)
}
