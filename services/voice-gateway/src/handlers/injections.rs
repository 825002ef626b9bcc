//! Texts and contexts for the agent: taken in first, then waited for a moment.

use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::ids::{GatewaySessionId, MessageId};
use ensemble_types::voice::{SendVoiceContext, SendVoiceText, VoiceContext, VoiceDelivery, VoiceText};

use super::caller::VoiceCaller;
use crate::VoiceGateway;
use crate::error::Error;
use crate::store::Accepted;

pub(crate) async fn text(
    gateway: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<SendVoiceText>,
) -> HandlerResult<Json<VoiceText>> {
    let id = session_to_address(&gateway, &caller, &body.gateway_session_id).await?;
    let message_id = body.message_id.map_or_else(|| MessageId::generate().to_string(), |id| id.into_string());
    let text = body.text.into_string();
    let taken = accepted(
        gateway.store.accept_text(id, message_id, text, gateway.delivery.queue_max).await.map_err(Error::from)?,
    )?;
    let delivery = if taken.delivery == VoiceDelivery::Queued && taken.reachable {
        gateway.await_text(id, taken.seq).await?
    } else {
        taken.delivery
    };
    Ok(Json(VoiceText { accepted: true, message_id: taken.message_id, delivery }))
}

pub(crate) async fn context(
    gateway: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<SendVoiceContext>,
) -> HandlerResult<Json<VoiceContext>> {
    let id = session_to_address(&gateway, &caller, &body.gateway_session_id).await?;
    let payload = body.payload.as_text().to_owned();
    let (version, reachable) = accepted(gateway.store.accept_context(id, payload).await.map_err(Error::from)?)?;
    let delivery = if reachable { gateway.await_context(id, version).await? } else { VoiceDelivery::Queued };
    let context_version = u64::try_from(version).unwrap_or(0);
    Ok(Json(VoiceContext { accepted: true, context_version, delivery }))
}

async fn session_to_address(gateway: &VoiceGateway, caller: &VoiceCaller, id: &str) -> Result<GatewaySessionId, Error> {
    let found = gateway.visible(caller, id).await?.ok_or(Error::Unknown("accepted"))?;
    gateway.rates.injection(found.session.id).map_err(|retry_after| Error::TooMany { retry_after })?;
    Ok(found.session.id)
}

fn accepted<T>(taken: Accepted<T>) -> Result<T, Error> {
    match taken {
        Accepted::Yes(taken) => Ok(taken),
        Accepted::Unknown => Err(Error::Unknown("accepted")),
        Accepted::NotLive => Err(Error::NotLive),
        Accepted::QueueFull => Err(Error::QueueFull),
    }
}
