//! Start, stop, status, and the key that all three need.

use ensemble_chassis::{HandlerResult, IdempotentJson, Json, Path, State};
use ensemble_types::problem::Problem;
use ensemble_types::voice::{StartVoiceSession, StopVoiceSession, VoiceKey, VoiceStart, VoiceStatus, VoiceStop};

use crate::VoiceGateway;
use crate::domain::caller::VoiceCaller;
use crate::domain::session::StartKey;

pub(crate) async fn start(
    service: State<VoiceGateway>,
    caller: VoiceCaller,
    IdempotentJson { body, key, .. }: IdempotentJson<StartVoiceSession>,
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

/// The key for our own page and program. Applications of others get theirs from the operator.
pub(crate) async fn key(service: State<VoiceGateway>) -> HandlerResult<Json<VoiceKey>> {
    let voice_key = service.voice_keys.of_page().ok_or_else(Problem::not_found)?.to_owned();
    Ok(Json(VoiceKey { voice_key }))
}
