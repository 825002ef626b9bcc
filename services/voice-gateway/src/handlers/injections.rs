//! Texts and contexts for the agent.

use ensemble_chassis::{HandlerResult, Json, State};
use ensemble_types::voice::{SayVoiceText, SendVoiceContext, SendVoiceText, VoiceContext, VoiceText};

use super::caller::VoicePerson;
use crate::VoiceGateway;
use crate::domain::caller::VoiceCaller;

pub(crate) async fn text(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<SendVoiceText>,
) -> HandlerResult<Json<VoiceText>> {
    Ok(Json(service.send_text(&caller, body).await?))
}

pub(crate) async fn say(
    service: State<VoiceGateway>,
    VoicePerson { caller, .. }: VoicePerson,
    Json(body): Json<SayVoiceText>,
) -> HandlerResult<Json<VoiceText>> {
    Ok(Json(service.say(&caller, body).await?))
}

pub(crate) async fn context(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<SendVoiceContext>,
) -> HandlerResult<Json<VoiceContext>> {
    Ok(Json(service.send_context(&caller, body).await?))
}
