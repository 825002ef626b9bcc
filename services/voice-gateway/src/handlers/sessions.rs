//! Start, stop, status.

use ensemble_chassis::{HandlerResult, IdempotentJson, Json, Path, State};
use ensemble_types::voice::{StartVoiceSession, StopVoiceSession, VoiceRefusal, VoiceStart, VoiceStatus, VoiceStop};

use super::caller::VoiceCaller;
use crate::VoiceGateway;
use crate::error::Error;
use crate::store::StartKey;

pub(crate) async fn start(
    gateway: State<VoiceGateway>,
    caller: VoiceCaller,
    IdempotentJson { body, key }: IdempotentJson<StartVoiceSession>,
) -> HandlerResult<Json<VoiceStart>> {
    caller.must_be(&body.user_id)?;
    if let Err(wait) = gateway.rates.start(&caller.key, &body.user_id, caller.address) {
        let refused = gateway.refuse(VoiceRefusal::RateLimited);
        return Ok(Json(VoiceStart { retry_after_seconds: Some(wait), ..refused }));
    }
    let key = key.map(|key| StartKey { key: key.key, body_hash: key.body_hash });
    Ok(Json(gateway.start(body, key).await?))
}

pub(crate) async fn stop(
    gateway: State<VoiceGateway>,
    caller: VoiceCaller,
    Json(body): Json<StopVoiceSession>,
) -> HandlerResult<Json<VoiceStop>> {
    // One that the caller may not see is as unknown as one that never was, and an unknown one counts as stopped.
    let found = gateway.visible(&caller, &body.gateway_session_id).await?;
    Ok(Json(gateway.stop(found.map(|found| found.session.id)).await?))
}

pub(crate) async fn status(
    gateway: State<VoiceGateway>,
    caller: VoiceCaller,
    Path(id): Path<String>,
) -> HandlerResult<Json<VoiceStatus>> {
    let found = gateway.visible(&caller, &id).await?.ok_or(Error::Unknown("found"))?;
    Ok(Json(gateway.status(found).await?))
}
