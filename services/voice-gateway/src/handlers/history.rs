//! What only the session's user can read. They send their own token with the voice key.

use ensemble_chassis::{HandlerResult, Json, Path, Query, State};
use ensemble_types::ids::GatewaySessionId;
use ensemble_types::page::Limit;
use ensemble_types::voice_history::{VoiceSessionPage, VoiceTranscript};
use serde::Deserialize;
use utoipa::IntoParams;

use super::caller::VoicePerson;
use crate::VoiceGateway;

/// Which page.
#[derive(Deserialize, IntoParams)]
pub(crate) struct VoiceSessionQuery {
    /// How many. The default is 20.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<20, 100>,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
}

/// Which part.
#[derive(Deserialize, IntoParams)]
pub(crate) struct TranscriptQuery {
    /// The `seq` of the last utterance that the reader knows. The default is 0, the beginning.
    #[serde(default)]
    after: u32,
    /// How many. The default is 100.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 200>,
}

pub(crate) async fn list(
    service: State<VoiceGateway>,
    VoicePerson { user, .. }: VoicePerson,
    Query(query): Query<VoiceSessionQuery>,
) -> HandlerResult<Json<VoiceSessionPage>> {
    Ok(Json(service.list_sessions(user, query.cursor.as_deref(), query.limit.get()).await?))
}

pub(crate) async fn transcript(
    service: State<VoiceGateway>,
    VoicePerson { user, .. }: VoicePerson,
    Path(id): Path<GatewaySessionId>,
    Query(query): Query<TranscriptQuery>,
) -> HandlerResult<Json<VoiceTranscript>> {
    Ok(Json(service.transcript(user, id, query.after.into(), query.limit.get()).await?))
}
