//! LiveKit's webhooks: genuine, once, quickly. LiveKit holds back a room's next event until this one is answered, so
//! whatever takes long is left to the timers.

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use ensemble_chassis::http::{BodyLimits, read_body};
use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::voice::VoiceAgentHeard;

use crate::VoiceGateway;
use crate::domain::webhook::Webhook;
use crate::error::Error;
use crate::store::Taken;

/// Far more than any event of LiveKit.
const LIMIT: usize = 1 << 20;

pub(crate) async fn livekit(
    gateway: State<VoiceGateway>,
    request: HttpRequest,
    payload: web::Payload,
) -> HandlerResult<Json<VoiceAgentHeard>> {
    let forged = || {
        gateway.metrics.webhook("forged");
        Error::Unauthenticated
    };
    let signature = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    let announced = gateway.webhook_keys.announced(signature).ok_or_else(forged)?;
    let limits = BodyLimits { max_bytes: LIMIT, ..BodyLimits::default() };
    let body = read_body(&request, payload.into_inner(), limits).await?;
    if !announced.is_of(&body) {
        return Err(forged().into());
    }
    gateway.metrics.webhook(match Webhook::parse(&body) {
        None => "unreadable",
        Some(webhook) => gateway.take_webhook(webhook).await?,
    });
    Ok(Json(VoiceAgentHeard { success: true }))
}

impl VoiceGateway {
    async fn take_webhook(&self, webhook: Webhook) -> Result<&'static str, Error> {
        let Some(room) = webhook.room_name().filter(|room| room.starts_with(&self.rooms.prefix)) else {
            return Ok("ignored");
        };
        if webhook.is_birth() {
            self.births.report(room.to_owned());
            return Ok("noted");
        }
        let (Some(id), true) = (self.rooms.session_of(room), webhook.is_news()) else { return Ok("ignored") };
        Ok(match self.store.take_webhook(id, webhook).await? {
            Taken::Applied => "applied",
            Taken::Ignored => "ignored",
            Taken::Before => "repeated",
        })
    }
}
