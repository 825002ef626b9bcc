//! The Twirp endpoints: `POST /twirp/livekit.<Service>/<Method>`.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, Data, Path, PayloadConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use livekit_api::access_token::{TokenVerifier, VideoGrants};
use livekit_protocol as proto;
use prost::Message;
use serde_json::json;

use crate::livekit::agents::{Received, Rpc, Via};
use crate::livekit::faults::Fault;
use crate::livekit::state::{Inner, sid};
use crate::livekit::{API_KEY, API_SECRET};

/// The largest payload of one RPC.
const RPC_MAX: usize = 15_360;

/// A Twirp error: status, code, message.
struct Refusal(u16, &'static str, String);

pub(crate) fn serve(listener: TcpListener, inner: Arc<Inner>) -> std::io::Result<()> {
    let runtime = inner.runtime.clone();
    let data = Data::from(inner);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(data.clone())
            .app_data(PayloadConfig::new(4 << 20))
            .route("/twirp/{service}/{method}", web::post().to(twirp))
    })
    .workers(1)
    .disable_signals()
    .listen(listener)?
    .run();
    runtime.spawn(server);
    Ok(())
}

async fn twirp(request: HttpRequest, path: Path<(String, String)>, body: Bytes, inner: Data<Inner>) -> HttpResponse {
    let arrived = Instant::now();
    let (_, method) = path.into_inner();
    let inner = inner.into_inner();
    inner.change(|state| *state.calls.entry(method.clone()).or_default() += 1);
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or("");
    let fault = inner.faults.draw(&method);
    match &fault {
        Some(Fault::Slow(wait)) => tokio::time::sleep(*wait).await,
        Some(Fault::Held) => inner.released().await,
        Some(Fault::PlainUnauthorized) => return unauthorized(token),
        Some(Fault::Unavailable) => {
            return refused(&Refusal(503, "unavailable", "no response from servers".to_owned()));
        }
        Some(Fault::BadGateway) => return HttpResponse::BadGateway().content_type("text/html").body("<h1>502</h1>"),
        Some(Fault::Twirp(status, code)) => return refused(&Refusal(*status, code, "injected by a test".to_owned())),
        Some(Fault::Hang(wait)) => {
            tokio::time::sleep(*wait).await;
            return HttpResponse::GatewayTimeout().finish();
        }
        Some(Fault::EffectWithoutAnswer(_)) | None => {}
    }
    let Some(claims) =
        token.strip_prefix("Bearer ").and_then(|jwt| TokenVerifier::with_api_key(API_KEY, API_SECRET).verify(jwt).ok())
    else {
        return unauthorized(token);
    };
    let answer = perform(&inner, &method, &claims.video, body.clone());
    if let Some(Fault::EffectWithoutAnswer(wait)) = fault {
        tokio::time::sleep(wait).await;
        return HttpResponse::GatewayTimeout().finish();
    }
    if method == "CreateRoom"
        && let Ok(request) = proto::CreateRoomRequest::decode(body)
    {
        inner.change(|state| state.took.insert(request.name, arrived.elapsed()));
    }
    match answer {
        Ok(body) => HttpResponse::Ok().content_type("application/protobuf").body(body),
        Err(refusal) => refused(&refusal),
    }
}

/// As livekit-server does, with the token in the text.
fn unauthorized(token: &str) -> HttpResponse {
    HttpResponse::Unauthorized().content_type("text/plain").body(format!("invalid token: {token}"))
}

fn refused(Refusal(status, code, msg): &Refusal) -> HttpResponse {
    let status =
        actix_web::http::StatusCode::from_u16(*status).unwrap_or(actix_web::http::StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status).json(json!({ "code": code, "msg": msg }))
}

fn perform(inner: &Arc<Inner>, method: &str, grants: &VideoGrants, body: Bytes) -> Result<Vec<u8>, Refusal> {
    let admin = |room: &str| may(grants.room_admin && grants.room == room);
    match method {
        "CreateRoom" => {
            may(grants.room_create)?;
            create_room(inner, decode(body)?)
        }
        "DeleteRoom" => {
            may(grants.room_create)?;
            let request: proto::DeleteRoomRequest = decode(body)?;
            if inner.delete_room(&request.room) {
                Ok(proto::DeleteRoomResponse {}.encode_to_vec())
            } else {
                Err(not_found("requested room does not exist"))
            }
        }
        "ListRooms" => {
            may(grants.room_list)?;
            let request: proto::ListRoomsRequest = decode(body)?;
            Ok(proto::ListRoomsResponse { rooms: inner.rooms(&request.names) }.encode_to_vec())
        }
        "ListParticipants" => {
            let request: proto::ListParticipantsRequest = decode(body)?;
            admin(&request.room)?;
            Ok(proto::ListParticipantsResponse { participants: inner.participants(&request.room) }.encode_to_vec())
        }
        "PerformRpc" => {
            let request: proto::PerformRpcRequest = decode(body)?;
            admin(&request.room)?;
            perform_rpc(inner, &request)
        }
        "SendData" => {
            let request: proto::SendDataRequest = decode(body)?;
            admin(&request.room)?;
            Ok(send_data(inner, &request))
        }
        "CreateDispatch" => {
            let request: proto::CreateAgentDispatchRequest = decode(body)?;
            admin(&request.room)?;
            create_dispatch(inner, request)
        }
        "ListDispatch" => {
            let request: proto::ListAgentDispatchRequest = decode(body)?;
            admin(&request.room)?;
            let agent_dispatches = inner.with_dispatches(&request.room, |all| all.clone()).ok_or_else(no_node)?;
            Ok(proto::ListAgentDispatchResponse { agent_dispatches }.encode_to_vec())
        }
        "DeleteDispatch" => {
            let request: proto::DeleteAgentDispatchRequest = decode(body)?;
            admin(&request.room)?;
            let take = |all: &mut Vec<proto::AgentDispatch>| {
                let at = all.iter().position(|one| one.id == request.dispatch_id)?;
                Some(all.remove(at))
            };
            let gone = inner.with_dispatches(&request.room, take).ok_or_else(no_node)?;
            gone.map(|one| one.encode_to_vec()).ok_or_else(|| not_found("no such dispatch"))
        }
        _ => Err(Refusal(404, "bad_route", format!("no handler for {method}"))),
    }
}

fn create_room(inner: &Arc<Inner>, request: proto::CreateRoomRequest) -> Result<Vec<u8>, Refusal> {
    let dispatches: Vec<_> =
        request.agents.into_iter().map(|agent| dispatch_of(&request.name, agent.agent_name, agent.metadata)).collect();
    let bound = |seconds: u32, default: u64| Duration::from_secs(if seconds == 0 { default } else { seconds.into() });
    let (room, new) = inner.create_room(
        &request.name,
        bound(request.empty_timeout, 300),
        bound(request.departure_timeout, 20),
        dispatches.clone(),
    );
    if new {
        for dispatch in &dispatches {
            inner.dispatch(&request.name, dispatch);
        }
    }
    Ok(room.encode_to_vec())
}

fn create_dispatch(inner: &Arc<Inner>, request: proto::CreateAgentDispatchRequest) -> Result<Vec<u8>, Refusal> {
    let dispatch = dispatch_of(&request.room, request.agent_name, request.metadata);
    inner.with_dispatches(&request.room, |all| all.push(dispatch.clone())).ok_or_else(no_node)?;
    inner.dispatch(&request.room, &dispatch);
    Ok(dispatch.encode_to_vec())
}

fn dispatch_of(room: &str, agent_name: String, metadata: String) -> proto::AgentDispatch {
    proto::AgentDispatch {
        id: sid("AD"),
        agent_name,
        room: room.to_owned(),
        metadata,
        state: Some(proto::AgentDispatchState::default()),
        ..Default::default()
    }
}

fn perform_rpc(inner: &Inner, request: &proto::PerformRpcRequest) -> Result<Vec<u8>, Refusal> {
    if !inner.read(|state| state.plan.rpc_supported) {
        return Err(Refusal(404, "bad_route", "no handler for path".to_owned()));
    }
    if request.payload.len() > RPC_MAX {
        return Err(Refusal(400, "malformed", "payload too large".to_owned()));
    }
    let to = inner
        .participant(&request.room, &request.destination_identity)
        .ok_or_else(|| not_found("participant does not exist"))?;
    let receive = || receive(inner, &request.room, Via::Rpc, &request.method, request.payload.as_bytes());
    match to.rpc {
        Rpc::Answers => {
            receive();
            Ok(proto::PerformRpcResponse { payload: "{\"ok\":true}".to_owned() }.encode_to_vec())
        }
        Rpc::LosesAnswer => {
            receive();
            Err(Refusal(408, "canceled", "Response timeout".to_owned()))
        }
        Rpc::Silent => Err(Refusal(408, "canceled", "Connection timeout".to_owned())),
        Rpc::NotRegistered => Err(Refusal(400, "invalid_argument", "Method not supported at destination".to_owned())),
        Rpc::Throws => Err(Refusal(500, "internal", "Application error in method handler".to_owned())),
    }
}

/// Succeeds even when the destination is not there.
fn send_data(inner: &Inner, request: &proto::SendDataRequest) -> Vec<u8> {
    for identity in &request.destination_identities {
        if inner.participant(&request.room, identity).is_some() {
            receive(inner, &request.room, Via::Data, request.topic.as_deref().unwrap_or(""), &request.data);
        }
    }
    proto::SendDataResponse {}.encode_to_vec()
}

fn receive(inner: &Inner, room: &str, via: Via, name: &str, payload: &[u8]) {
    let payload = serde_json::from_slice(payload).unwrap_or_default();
    inner.receive(Received { room: room.to_owned(), via, name: name.to_owned(), payload });
}

fn decode<M: Message + Default>(body: Bytes) -> Result<M, Refusal> {
    M::decode(body).map_err(|error| Refusal(400, "malformed", error.to_string()))
}

fn may(granted: bool) -> Result<(), Refusal> {
    if granted { Ok(()) } else { Err(Refusal(401, "unauthenticated", "permissions denied".to_owned())) }
}

fn not_found(msg: &str) -> Refusal {
    Refusal(404, "not_found", msg.to_owned())
}

/// LiveKit's answer when no node has the room.
fn no_node() -> Refusal {
    Refusal(503, "unavailable", "no response from servers".to_owned())
}
