//! LiveKit's webhooks: verified, processed once, answered quickly. LiveKit holds back a room's next event until this one is
//! answered, so slow work is left to the timers.

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use ensemble_chassis::http::read_body;
use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::voice::VoiceAgentReceipt;

use crate::VoiceGateway;
use crate::domain::webhook::Webhook;
use crate::error::Error;

pub(crate) async fn livekit(
    service: State<VoiceGateway>,
    request: HttpRequest,
    payload: web::Payload,
) -> HandlerResult<Json<VoiceAgentReceipt>> {
    let forged = || {
        service.metrics.webhook("forged");
        Error::Unauthenticated
    };
    let signature = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let digest = service.webhook_keys.signed_digest(signature).ok_or_else(forged)?;
    let body = read_body(&request, payload.into_inner()).await?;
    if !digest.matches(&body) {
        return Err(forged().into());
    }
    let result = match Webhook::parse(&body) {
        None => "unreadable",
        Some(webhook) => service.take_webhook(webhook).await?,
    };
    service.metrics.webhook(result);
    Ok(Json(VoiceAgentReceipt { success: true }))
}
