//! Sessions: create, list, read, update, remove.

use ensemble_chassis::{Caller, HandlerResult, IdempotentJson, Json, LargeAnswer, Path, Query, State, Upserted};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::SessionId;
use ensemble_types::page::Limit;
use ensemble_types::refs::IdOrRef;
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use ensemble_types::time::Timestamp;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::SessionStore;
use crate::domain::session::{Draft, SessionChange};
use crate::error::Error;
use crate::handlers::actor;
use crate::operations;
use crate::operations::session_list::{ListRequest, ShortList};
use crate::operations::sessions::Created;

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListQuery {
    /// Includes the sessions that others share with the caller.
    #[param(inline)]
    include: Option<Include>,
    /// Only sessions that want something from their people.
    #[param(inline)]
    attention: Option<WithAttention>,
    /// Only sessions that changed, or were shared with the caller, at this time or later.
    changed_since: Option<Timestamp>,
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 500>,
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Include {
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WithAttention {
    Any,
}

pub(crate) async fn create(
    service: State<SessionStore>,
    caller: Caller,
    IdempotentJson { body, key, .. }: IdempotentJson<CreateSession>,
) -> HandlerResult<Upserted<Session>> {
    let request = key.map(|key| IdempotencyRequest {
        scope: scope(&caller),
        route: "POST /v1/sessions",
        key: key.key,
        body_hash: key.body_hash,
    });
    let draft = Draft::new(body).map_err(Error::from)?;
    let Created { session, is_new } = operations::sessions::create(&service, actor(&caller), draft, request).await?;
    Ok(Upserted { created: is_new, location: format!("/v1/sessions/{}", session.id), body: session })
}

pub(crate) async fn list(
    service: State<SessionStore>,
    caller: Caller,
    Query(query): Query<ListQuery>,
    large: LargeAnswer,
) -> HandlerResult<Json<SessionPage>> {
    page(&service, query.request(&caller, false), &large).await
}

pub(crate) async fn list_active(
    service: State<SessionStore>,
    caller: Caller,
    Query(query): Query<ListQuery>,
    large: LargeAnswer,
) -> HandlerResult<Json<SessionPage>> {
    page(&service, query.request(&caller, true), &large).await
}

/// Short pages do not wait for the caller's long ones.
async fn page(service: &SessionStore, request: ListRequest, large: &LargeAnswer) -> HandlerResult<Json<SessionPage>> {
    let list = match operations::session_list::short_list(service, request).await? {
        ShortList::Whole(page) => return Ok(Json(page)),
        ShortList::Long(list) => list,
    };
    let _turn = large.turn_for(usize::try_from(list.bytes).unwrap_or(usize::MAX)).await?;
    Ok(Json(operations::session_list::long_list(service, list).await?))
}

pub(crate) async fn read(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
) -> HandlerResult<Json<Session>> {
    let id = operations::sessions::resolve(&service, id).await?;
    Ok(Json(operations::sessions::read(&service, id, actor(&caller)).await?))
}

pub(crate) async fn update(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
    Json(body): Json<UpdateSession>,
) -> HandlerResult<Json<Session>> {
    let id = operations::sessions::resolve(&service, id).await?;
    let change = SessionChange::new(body).map_err(Error::from)?;
    Ok(Json(operations::sessions::update(&service, id, actor(&caller), change).await?))
}

pub(crate) async fn remove(
    service: State<SessionStore>,
    caller: Caller,
    Path(id): Path<IdOrRef<SessionId>>,
) -> HandlerResult<Json<Deleted>> {
    let id = operations::sessions::resolve(&service, id).await?;
    operations::sessions::delete(&service, id, actor(&caller)).await?;
    Ok(Json(Deleted::DONE))
}

/// A machine's keys are apart from its owner's.
fn scope(caller: &Caller) -> String {
    match &caller.machine {
        Some(machine) => format!("{} {machine}", caller.user),
        None => caller.user.to_string(),
    }
}

impl ListQuery {
    fn request(self, caller: &Caller, active_only: bool) -> ListRequest {
        ListRequest {
            caller: actor(caller),
            include_shared: self.include == Some(Include::Shared),
            active_only,
            wanting: self.attention == Some(WithAttention::Any),
            changed_since: self.changed_since,
            limit: self.limit.get() as usize,
            cursor: self.cursor,
        }
    }
}
