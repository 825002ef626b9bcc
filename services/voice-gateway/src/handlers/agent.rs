//! The agent's routes. Its bearer token is valid for one session only.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::{HttpRequest, HttpResponse};
use ensemble_chassis::auth::bearer;
use ensemble_chassis::{DeferredJson, HandlerResult, Json, Path, State};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::voice::{VoiceAgentEvent, VoiceAgentReceipt, VoicePulledText};

use super::caller::address;
use crate::VoiceGateway;
use crate::error::Error;
use crate::operations::agents::AgentCaller;

pub(crate) async fn context(
    service: State<VoiceGateway>,
    Path(id): Path<GatewaySessionId>,
    request: HttpRequest,
) -> HandlerResult<HttpResponse> {
    authenticate(&service, id, &request).await?;
    let context = service.fetch_context(id).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "application/json"))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header(("X-Context-Version", context.version.to_string()))
        .body(context.body))
}

pub(crate) async fn text(
    service: State<VoiceGateway>,
    Path((id, seq)): Path<(GatewaySessionId, i64)>,
    request: HttpRequest,
) -> HandlerResult<Json<VoicePulledText>> {
    authenticate(&service, id, &request).await?;
    Ok(Json(service.fetch_text(id, seq).await?))
}

pub(crate) async fn event(
    service: State<VoiceGateway>,
    Path(id): Path<GatewaySessionId>,
    request: HttpRequest,
    body: DeferredJson<VoiceAgentEvent>,
) -> HandlerResult<Json<VoiceAgentReceipt>> {
    let caller = authenticate(&service, id, &request).await?;
    service.take_agent_event(&caller, body.read().await?).await?;
    Ok(Json(VoiceAgentReceipt { success: true }))
}

async fn authenticate(
    service: &VoiceGateway,
    id: GatewaySessionId,
    request: &HttpRequest,
) -> Result<AgentCaller, Error> {
    let caller = service.authenticate_agent(id, bearer(request).ok_or(Error::Unauthenticated)?).await;
    let allowed = match &caller {
        Ok(_) => service.rates.agent_call(id),
        Err(Error::Unauthenticated) => service.rates.wrong_key(address(request)),
        Err(_) => Ok(()),
    };
    allowed.map_err(|retry_after| Error::TooMany { counted: "calls of this voice session's agent", retry_after })?;
    caller
}
