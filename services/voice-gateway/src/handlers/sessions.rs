//! Start, stop, status.

use ensemble_chassis::{HandlerResult, IdempotentJson, Json, Path, State};
use ensemble_types::voice::{StartVoiceSession, StopVoiceSession, VoiceStart, VoiceStatus, VoiceStop};

use crate::VoiceGateway;
use crate::domain::caller::VoiceCaller;
use crate::domain::session::StartKey;

pub(crate) async fn start(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    IdempotentJson { body, key }: IdempotentJson<StartVoiceSession>,
) -> HandlerResult<Json<VoiceStart>> {
    let key = key.map(|key| StartKey { key: key.key, body_hash: key.body_hash });
    Ok(Json(service.start(&caller, body, key).await?))
}

pub(crate) async fn stop(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<StopVoiceSession>,
) -> HandlerResult<Json<VoiceStop>> {
    Ok(Json(service.stop(&caller, &body.gateway_session_id).await?))
}

pub(crate) async fn status(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    Path(id): Path<String>,
) -> HandlerResult<Json<VoiceStatus>> {
    Ok(Json(service.status(&caller, &id).await?))
}
