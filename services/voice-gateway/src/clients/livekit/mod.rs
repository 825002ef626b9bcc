//! The part of LiveKit's server API that the gateway uses.
//!
//! The vendor's crate creates tokens and verifies them. Its service client is not used: it cannot dispatch an agent with
//! CreateRoom, has no PerformRpc, loses the status of answers that are not Twirp, and signs every call for six hours.

mod breaker;
mod error;
mod tokens;
mod twirp;
mod webhooks;

use std::time::Duration;

use livekit_api::access_token::VideoGrants;
use livekit_protocol as proto;

pub(crate) use breaker::Breaker;
pub(crate) use error::CallError;
pub(crate) use tokens::{ApiKey, TokenError};
pub(crate) use twirp::Twirp;
pub(crate) use webhooks::WebhookKeys;

use crate::domain::observation::Seen;
use crate::domain::state::Sid;

/// How long each kind of call may take.
#[derive(Clone, Debug)]
pub(crate) struct Budgets {
    /// The first attempt; the second one has half as long.
    pub(crate) create: Duration,
    pub(crate) delete: Duration,
    pub(crate) list: Duration,
    pub(crate) rpc: Duration,
    /// How long LiveKit waits for the agent's answer. Its own retries come on top, within `rpc`.
    pub(crate) rpc_response: Duration,
    pub(crate) send: Duration,
    pub(crate) dispatch: Duration,
}

/// A client of one LiveKit server or project.
pub(crate) struct LiveKit {
    twirp: Twirp,
    budgets: Budgets,
}

/// A room to be created, with its agent.
pub(crate) struct NewRoom<'a> {
    pub(crate) name: &'a str,
    pub(crate) agent_name: &'a str,
    /// For the agent only.
    pub(crate) agent_metadata: String,
    pub(crate) empty_timeout: Duration,
    pub(crate) departure_timeout: Duration,
}

/// A room that exists.
#[derive(Clone, Debug)]
pub(crate) struct ListedRoom {
    pub(crate) name: String,
    pub(crate) sid: Sid,
}

const ROOM_SERVICE: &str = "RoomService";
const DISPATCH_SERVICE: &str = "AgentDispatchService";

impl LiveKit {
    pub(crate) fn new(twirp: Twirp, budgets: Budgets) -> Self {
        Self { twirp, budgets }
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        self.twirp.breaker()
    }

    /// Whether LiveKit accepted our key the last time.
    pub(crate) fn key_is_good(&self) -> bool {
        self.twirp.key_is_good()
    }

    /// Creates the room and dispatches its agent. Safe to repeat: an existing room is returned without a second agent.
    pub(crate) async fn create_room(&self, room: NewRoom<'_>) -> Result<Sid, CallError> {
        let request = proto::CreateRoomRequest {
            name: room.name.to_owned(),
            empty_timeout: seconds(room.empty_timeout),
            departure_timeout: seconds(room.departure_timeout),
            // Agents do not count.
            max_participants: 1,
            agents: vec![proto::RoomAgentDispatch {
                agent_name: room.agent_name.to_owned(),
                metadata: room.agent_metadata,
                ..Default::default()
            }],
            ..Default::default()
        };
        let grants = || VideoGrants { room_create: true, ..Default::default() };
        let call = |budget| self.twirp.call::<_, proto::Room>(ROOM_SERVICE, "CreateRoom", &request, grants(), budget);
        let made = match call(self.budgets.create).await {
            // The caller waits, so the second attempt gets half the time.
            Err(error) if error.is_retryable() => call(self.budgets.create / 2).await,
            other => other,
        };
        made.map(|room| room.sid)
    }

    /// Deletes the room and disconnects its participants. A room that does not exist counts as deleted.
    pub(crate) async fn delete_room(&self, name: &str) -> Result<(), CallError> {
        self.delete_room_within(name, self.budgets.delete).await
    }

    pub(crate) async fn delete_room_within(&self, name: &str, budget: Duration) -> Result<(), CallError> {
        let request = proto::DeleteRoomRequest { room: name.to_owned() };
        let grants = VideoGrants { room_create: true, ..Default::default() };
        let deleted =
            self.twirp.call::<_, proto::DeleteRoomResponse>(ROOM_SERVICE, "DeleteRoom", &request, grants, budget);
        match deleted.await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All rooms of the project.
    pub(crate) async fn rooms(&self) -> Result<Vec<ListedRoom>, CallError> {
        self.list_rooms(Vec::new(), self.budgets.list).await
    }

    /// The room of this name, if there is one.
    pub(crate) async fn room(&self, name: &str, budget: Option<Duration>) -> Result<Option<ListedRoom>, CallError> {
        let listed = self.list_rooms(vec![name.to_owned()], budget.unwrap_or(self.budgets.list)).await?;
        Ok(listed.into_iter().find(|room| room.name == name))
    }

    async fn list_rooms(&self, names: Vec<String>, budget: Duration) -> Result<Vec<ListedRoom>, CallError> {
        let request = proto::ListRoomsRequest { names };
        let grants = VideoGrants { room_list: true, ..Default::default() };
        let listed: proto::ListRoomsResponse =
            self.twirp.call(ROOM_SERVICE, "ListRooms", &request, grants, budget).await?;
        Ok(listed.rooms.into_iter().map(|room| ListedRoom { name: room.name, sid: room.sid }).collect())
    }

    /// The participants of the room. An unknown room has none.
    pub(crate) async fn participants(&self, room: &str, budget: Option<Duration>) -> Result<Vec<Seen>, CallError> {
        let request = proto::ListParticipantsRequest { room: room.to_owned() };
        let budget = budget.unwrap_or(self.budgets.list);
        let listed: proto::ListParticipantsResponse =
            self.twirp.call(ROOM_SERVICE, "ListParticipants", &request, admin(room), budget).await?;
        Ok(listed.participants.into_iter().map(seen).collect())
    }

    /// Calls a method of a participant and waits for its answer.
    pub(crate) async fn perform_rpc(
        &self,
        room: &str,
        to: &str,
        method: &str,
        payload: String,
    ) -> Result<(), CallError> {
        let request = proto::PerformRpcRequest {
            room: room.to_owned(),
            destination_identity: to.to_owned(),
            method: method.to_owned(),
            payload,
            response_timeout_ms: u32::try_from(self.budgets.rpc_response.as_millis()).unwrap_or(u32::MAX),
        };
        self.twirp
            .call::<_, proto::PerformRpcResponse>(ROOM_SERVICE, "PerformRpc", &request, admin(room), self.budgets.rpc)
            .await
            .map(drop)
    }

    /// Sends a packet to one participant, without acknowledgement. LiveKit drops repetitions of a `nonce` (16 bytes).
    pub(crate) async fn send_data(
        &self,
        room: &str,
        to: &str,
        topic: &str,
        data: String,
        nonce: [u8; 16],
    ) -> Result<(), CallError> {
        let request = proto::SendDataRequest {
            room: room.to_owned(),
            data: data.into_bytes(),
            // Without a destination every participant would receive it.
            destination_identities: vec![to.to_owned()],
            topic: Some(topic.to_owned()),
            nonce: nonce.to_vec(),
            ..Default::default()
        };
        let call = || {
            self.twirp.call::<_, proto::SendDataResponse>(
                ROOM_SERVICE,
                "SendData",
                &request,
                admin(room),
                self.budgets.send,
            )
        };
        match call().await {
            Err(error) if error.is_retryable() => call().await.map(drop),
            other => other.map(drop),
        }
    }

    /// Dispatches the agent again. Every call brings one more agent, so look at the participants first.
    pub(crate) async fn create_dispatch(
        &self,
        room: &str,
        agent_name: &str,
        metadata: String,
    ) -> Result<(), CallError> {
        let request = proto::CreateAgentDispatchRequest {
            agent_name: agent_name.to_owned(),
            room: room.to_owned(),
            metadata,
            ..Default::default()
        };
        let made = self.twirp.call::<_, proto::AgentDispatch>(
            DISPATCH_SERVICE,
            "CreateDispatch",
            &request,
            admin(room),
            self.budgets.dispatch,
        );
        made.await.map(drop)
    }

    /// Deletes the dispatches that no worker has accepted.
    pub(crate) async fn delete_idle_dispatches(&self, room: &str) -> Result<(), CallError> {
        let request = proto::ListAgentDispatchRequest { room: room.to_owned(), ..Default::default() };
        let listed: proto::ListAgentDispatchResponse =
            self.twirp.call(DISPATCH_SERVICE, "ListDispatch", &request, admin(room), self.budgets.list).await?;
        for dispatch in listed.agent_dispatches {
            if dispatch.state.is_some_and(|state| !state.jobs.is_empty()) {
                continue;
            }
            let request = proto::DeleteAgentDispatchRequest { dispatch_id: dispatch.id, room: room.to_owned() };
            let deleted = self.twirp.call::<_, proto::AgentDispatch>(
                DISPATCH_SERVICE,
                "DeleteDispatch",
                &request,
                admin(room),
                self.budgets.dispatch,
            );
            match deleted.await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls LiveKit even while the breaker is open, and reports the result to the breaker.
    pub(crate) async fn probe(&self) -> Result<(), CallError> {
        let request = proto::ListRoomsRequest { names: vec!["probe".to_owned()] };
        let grants = VideoGrants { room_list: true, ..Default::default() };
        self.twirp.probe(ROOM_SERVICE, "ListRooms", &request, grants, self.budgets.list).await
    }
}

fn admin(room: &str) -> VideoGrants {
    VideoGrants { room_admin: true, room: room.to_owned(), ..Default::default() }
}

fn seconds(duration: Duration) -> u32 {
    // LiveKit reads zero as "the default".
    u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX)
}

fn seen(one: proto::ParticipantInfo) -> Seen {
    Seen {
        is_agent: one.kind == proto::participant_info::Kind::Agent as i32,
        is_active: one.state == proto::participant_info::State::Active as i32,
        says_ready: one.attributes.get("voice.ready").is_some_and(|value| value == "1"),
        identity: one.identity,
        sid: one.sid,
    }
}
