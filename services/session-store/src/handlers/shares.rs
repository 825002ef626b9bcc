//! Private shares: list, create, update, remove.

use ensemble_chassis::{Caller, HandlerResult, Json, Path, Query, State, Upserted};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::page::Limit;
use ensemble_types::refs::IdOrRef;
use ensemble_types::shares::{CreateShare, Share, SharePage, UpdateShare};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::SessionStore;
use crate::domain::Invalid;
use crate::error::Error;
use crate::handlers::actor;
use crate::operations;
use crate::operations::shares::{NewShare, ShareKey};

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ListQuery {
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 500>,
    cursor: Option<String>,
}

pub(crate) async fn list(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Query(query): Query<ListQuery>,
) -> HandlerResult<Json<SharePage>> {
    let id = operations::sessions::resolve(&service, id).await?;
    Ok(Json(operations::shares::list(&service, id, actor(&caller), query.limit.get() as usize, query.cursor).await?))
}

pub(crate) async fn create(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Json(body): Json<CreateShare>,
) -> HandlerResult<Upserted<Share>> {
    let id = operations::sessions::resolve(&service, id).await?;
    let CreateShare { user_id, access_level, encrypted_key, content_epoch } = body;
    let new = NewShare {
        session: id,
        recipient: user_id,
        level: access_level,
        encrypted_key: encrypted_key.into_string(),
        content_epoch,
        shared_by: caller.user,
    };
    let (share, created) = operations::shares::create(&service, actor(&caller), new).await?;
    Ok(Upserted { created, location: format!("/v1/sessions/{id}/shares"), body: share })
}

pub(crate) async fn update(
    service: State<SessionStore>,
    caller: Caller,
    Path((id, user)): Path<(IdOrRef<SessionId>, UserId)>,
    Json(body): Json<UpdateShare>,
) -> HandlerResult<Json<Share>> {
    let id = operations::sessions::resolve(&service, id).await?;
    if body.access_level.is_none() && body.encrypted_key.is_none() {
        return Err(Error::from(Invalid::new("", "must change at least one of accessLevel and encryptedKey")).into());
    }
    if body.content_epoch.is_some() && body.encrypted_key.is_none() {
        return Err(Error::from(Invalid::new("/contentEpoch", "belongs to encryptedKey; send both")).into());
    }
    let content_epoch = body.content_epoch;
    let key = body.encrypted_key.map(|key| ShareKey { sealed: key.into_string(), content_epoch });
    Ok(Json(operations::shares::update(&service, id, actor(&caller), user, body.access_level, key).await?))
}

pub(crate) async fn remove(
    service: State<SessionStore>,
    caller: Caller,
    Path((id, user)): Path<(IdOrRef<SessionId>, UserId)>,
) -> HandlerResult<Json<Deleted>> {
    let id = operations::sessions::resolve(&service, id).await?;
    operations::shares::remove(&service, id, actor(&caller), user).await?;
    Ok(Json(Deleted::DONE))
}
