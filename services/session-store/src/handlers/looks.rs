//! Looks at machines.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, State};
use ensemble_types::ids::LookId;
use ensemble_types::looks::{AnswerLook, AskLook, LookAnswerTaken, LookAnswered};
use ensemble_types::text::Blob;

use crate::SessionStore;
use crate::domain::look::Target;
use crate::error::Error;
use crate::handlers::actor;
use crate::operations::looks;

pub(crate) async fn ask(
    service: State<SessionStore>,
    caller: Caller,
    Json(body): Json<AskLook>,
) -> HandlerResult<Json<LookAnswered>> {
    let (target, question) = Target::of(body).map_err(Error::from)?;
    let answer = looks::ask(&service, actor(&caller), target, question).await?;
    let answer = Blob::new(answer).map_err(|_| Error::MachineAway)?;
    Ok(Json(LookAnswered { answer }))
}

pub(crate) async fn answer(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<LookId>,
    Json(body): Json<AnswerLook>,
) -> HandlerResult<Json<LookAnswerTaken>> {
    looks::answer(&service, actor(&caller), id, body.answer.into_string()).await?;
    Ok(Json(LookAnswerTaken { taken: true }))
}
