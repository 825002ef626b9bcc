//! LiveKit's webhooks: genuine, once, quickly. LiveKit holds back a room's next event until this one is answered, so
//! whatever takes long is left to the timers.

use actix_web::http::header::AUTHORIZATION;
use actix_web::{HttpRequest, web};
use ensemble_chassis::http::{BodyLimits, read_body};
use ensemble_chassis::{Answer, Reply, State};
use ensemble_types::voice::VoiceAgentHeard;

use crate::VoiceGateway;
use crate::domain::webhook::Webhook;
use crate::error::Error;
use crate::store::Taken;

/// Far more than any event of LiveKit.
const LIMITS: usize = 1 << 20;

pub(crate) async fn livekit(
    gateway: State<VoiceGateway>,
    request: HttpRequest,
    payload: web::Payload,
) -> Answer<Reply<VoiceAgentHeard>> {
    let body =
        read_body(&request, payload.into_inner(), BodyLimits { max_bytes: LIMITS, ..BodyLimits::default() }).await?;
    let signature = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    if !gateway.webhook_keys.is_genuine(&body, signature) {
        gateway.metrics.webhook("forged");
        return Err(Error::Unauthenticated.into());
    }
    gateway.metrics.webhook(match Webhook::parse(&body) {
        None => "unreadable",
        Some(webhook) => gateway.take_webhook(webhook).await?,
    });
    Ok(Reply(VoiceAgentHeard { success: true }))
}

impl VoiceGateway {
    async fn take_webhook(&self, webhook: Webhook) -> Result<&'static str, Error> {
        let Some(room) = webhook.room_name().map(str::to_owned) else { return Ok("ignored") };
        let id = self.rooms.session_of(&room);
        let is_birth = webhook.is_birth();
        let taken = self.store.take_webhook(id, webhook).await?;
        let is_stray = match &taken {
            Taken::Before => return Ok("repeated"),
            Taken::Stranger => room.starts_with(&self.rooms.prefix),
            Taken::Ignored(session) => session.is_over(),
            Taken::Applied => false,
        };
        if is_birth && is_stray {
            // The answer must not wait for this; what is lost here the reconciler finds.
            self.strays.report(room);
        }
        Ok(match taken {
            Taken::Applied => "applied",
            _ => "ignored",
        })
    }
}
