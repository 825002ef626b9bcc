//! Live frames of hosted sessions.

use ensemble_chassis::{Caller, HandlerResult, Json, State};
use ensemble_types::live::{LiveFrames, LiveFramesSent};

use crate::SessionStore;
use crate::domain::live;
use crate::error::Error;
use crate::handlers::actor;
use crate::operations;

pub(crate) async fn send(
    service: State<SessionStore>,
    caller: Caller,
    Json(body): Json<LiveFrames>,
) -> HandlerResult<Json<LiveFramesSent>> {
    let frames = live::frames(body).map_err(Error::from)?;
    let dropped = operations::live::send(&service, actor(&caller), frames).await?;
    Ok(Json(LiveFramesSent { dropped: dropped.into_iter().collect() }))
}
