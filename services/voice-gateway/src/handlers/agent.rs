//! The agent's side: fetching what is large, and telling how it fares. The bearer opens one session and nothing else.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::auth::bearer;
use ensemble_chassis::{DeferredJson, HandlerResult, Json, Path, State};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::text::Blob;
use ensemble_types::voice::{VoiceAgentEvent, VoiceAgentHeard, VoicePulledText};
use sha2::{Digest, Sha256};

use crate::VoiceGateway;
use crate::domain::session::VoiceSession;
use crate::domain::state::{Event, State as SessionState};
use crate::error::Error;

pub(crate) async fn context(
    gateway: State<VoiceGateway>,
    Path(id): Path<GatewaySessionId>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    open_door(&gateway, id, &request).await?;
    let reading = gateway.store.take_context(id).await.map_err(Error::from)?.ok_or(Error::Unauthenticated)?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/json"))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header(("X-Context-Version", reading.version.to_string()))
        .body(reading.body))
}

pub(crate) async fn text(
    gateway: State<VoiceGateway>,
    Path((id, seq)): Path<(GatewaySessionId, i64)>,
    request: HttpRequest,
) -> HandlerResult<Json<VoicePulledText>> {
    open_door(&gateway, id, &request).await?;
    let (message_id, text) = gateway.store.text(id, seq).await.map_err(Error::from)?.ok_or(Error::Unknown("found"))?;
    let text = Blob::new(text).map_err(|_| Error::Unknown("found"))?;
    Ok(Json(VoicePulledText { id: message_id, seq: u64::try_from(seq).unwrap_or(0), text }))
}

pub(crate) async fn event(
    gateway: State<VoiceGateway>,
    Path(id): Path<GatewaySessionId>,
    request: HttpRequest,
    body: DeferredJson<VoiceAgentEvent>,
) -> HandlerResult<Json<VoiceAgentHeard>> {
    let session = open_door(&gateway, id, &request).await?;
    match body.read().await? {
        VoiceAgentEvent::Ready => {
            gateway.metrics.agent_event("ready");
            if matches!(session.state, SessionState::Creating { .. }) {
                return Err(Error::TooEarly.into());
            }
            gateway.store.apply(id, Event::AgentReady).await.map_err(Error::from)?;
        }
        VoiceAgentEvent::State { state } => {
            gateway.metrics.agent_event("state");
            gateway.store.set_agent_state(id, state.into_string()).await.map_err(Error::from)?;
        }
        VoiceAgentEvent::Transcript { .. } => gateway.metrics.agent_event("transcript"),
        VoiceAgentEvent::Error { .. } => {
            // What it says may hold what was said; only that it spoke is logged.
            gateway.metrics.agent_event("error");
            tracing::warn!(voice.session = %id, "The agent reported an error");
        }
    }
    Ok(Json(VoiceAgentHeard { success: true }))
}

/// The session that the bearer opens. A wrong bearer, an unknown session and one that is over are the same 401.
async fn open_door(gateway: &VoiceGateway, id: GatewaySessionId, request: &HttpRequest) -> Result<VoiceSession, Error> {
    let token = bearer(request).ok_or(Error::Unauthenticated)?;
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    gateway.store.open_agent_door(id, digest).await?.ok_or(Error::Unauthenticated)
}
