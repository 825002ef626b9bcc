//! Private shares.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, Query, State, Upserted};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::page::Limit;
use ensemble_types::sessions::SealedKey;
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::SessionStore;
use crate::domain::Invalid;
use crate::error::Error;

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ListQuery {
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 500>,
    cursor: Option<String>,
}

pub(crate) async fn list(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Query(query): Query<ListQuery>,
) -> HandlerResult<Json<SharePage>> {
    Ok(Json(state.store.shares(id, caller.user, query.limit.get() as usize, query.cursor).await?))
}

/// The user is looked up only for who may share; whether they still may is decided again under the session's lock.
pub(crate) async fn create(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Json(body): Json<CreateShare>,
) -> HandlerResult<Upserted<Share>> {
    let CreateShare { user_id, access_level, encrypted_key } = body;
    state.store.may_share(id, caller.user, user_id, access_level).await?;
    state.peers.require_user(user_id).await?;
    let key = encrypted_key.into_string();
    let (share, created) = state.store.share(id, caller.user, user_id, access_level, key).await?;
    Ok(Upserted { created, body: share })
}

pub(crate) async fn update(
    state: State<SessionStore>,
    caller: Caller,
    Path((id, user)): Path<(SessionId, UserId)>,
    Json(body): Json<UpdateShare>,
) -> HandlerResult<Json<Share>> {
    if body.access_level.is_none() && body.encrypted_key.is_none() {
        return Err(Error::from(Invalid::new("", "must change at least one of accessLevel and encryptedKey")).into());
    }
    let key = body.encrypted_key.map(SealedKey::into_string);
    Ok(Json(state.store.update_share(id, caller.user, user, body.access_level, key).await?))
}

pub(crate) async fn remove(
    state: State<SessionStore>,
    caller: Caller,
    Path((id, user)): Path<(SessionId, UserId)>,
) -> HandlerResult<Json<Deleted>> {
    state.store.unshare(id, caller.user, user).await?;
    Ok(Json(Deleted::DONE))
}
