//! Invitations.

use actix_web::HttpRequest;
use ensemble_chassis::{Caller, Created, HandlerResult, Json, Path, Query, State};
use ensemble_protocol::lists::decode;
use ensemble_types::invites::{AnswerInvite, ClaimInvite, CreateInvite, CreatedInvite, Invite, InviteState, Invites};
use ensemble_types::text::Blob;
use serde::Deserialize;
use utoipa::IntoParams;

use super::waiting::{Found, read_until, reader};
use crate::Identity;
use crate::domain::{InviteId, encode};
use crate::error::Error;
use crate::operations::invites;

/// How long to wait.
#[derive(Deserialize, IntoParams)]
pub(crate) struct WaitQuery {
    /// Answer only when the invitation has changed, or after this many milliseconds. The account that made it waits for the claim, other
    /// callers wait for the answer.
    #[serde(default, rename = "waitMs")]
    #[param(maximum = 30_000)]
    wait_ms: u32,
}

pub(crate) async fn create(
    service: State<Identity>,
    caller: Caller,
    Json(body): Json<CreateInvite>,
) -> HandlerResult<Created<CreatedInvite>> {
    let invite = invites::create(&service.db, &caller, body).await?;
    let id = Blob::new(encode(&invite.id)).map_err(|_| Error::InviteNotFound)?;
    let location = format!("/v1/invites/{}", &*id);
    Ok(Created { location, body: CreatedInvite { id, expires_at: invite.expires_at } })
}

pub(crate) async fn list(service: State<Identity>, caller: Caller) -> HandlerResult<Json<Invites>> {
    let (found, now) = invites::list(&service.db, &caller).await?;
    Ok(Json(Invites { invites: found.into_iter().map(|invite| invite.listed(now)).collect() }))
}

pub(crate) async fn read(
    service: State<Identity>,
    request: HttpRequest,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> HandlerResult<Json<Invite>> {
    let id = invite_id(&id)?;
    read_until(&service, invites::topic(&id), query.wait_ms, async || {
        let (invite, now) = invites::read(&service.db, id).await?;
        let (reader, maker, expires_at) = (reader(&request), invite.user, invite.expires_at);
        let body = invite.seen_by(reader, now);
        let waits_on = match body.state {
            InviteState::Open => true,
            InviteState::Claimed => reader.is_none() || reader != maker,
            InviteState::Answered | InviteState::Ended | InviteState::Expired => false,
        };
        Ok(Found { body, waits_on, expires_at, now })
    })
    .await
}

pub(crate) async fn claim(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<ClaimInvite>,
) -> HandlerResult<Json<Invite>> {
    let (invite, now) = invites::claim(&service, &caller, invite_id(&id)?, body).await?;
    Ok(Json(invite.seen_by(None, now)))
}

pub(crate) async fn answer(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<AnswerInvite>,
) -> HandlerResult<Json<Invite>> {
    let (invite, now) = invites::answer(&service.db, &caller, invite_id(&id)?, body.answer.into_string()).await?;
    Ok(Json(invite.seen_by(Some(caller.user), now)))
}

pub(crate) async fn end(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
) -> HandlerResult<Json<Invite>> {
    let (invite, now) = invites::end(&service.db, &caller, invite_id(&id)?).await?;
    Ok(Json(invite.seen_by(Some(caller.user), now)))
}

fn invite_id(text: &str) -> Result<InviteId, Error> {
    decode(text).ok_or(Error::InviteNotFound)
}
