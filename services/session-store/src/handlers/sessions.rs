//! Sessions.

use ensemble_chassis::{Caller, HandlerResult, IdempotentJson, Json, Path, Query, State, Upserted};
use ensemble_store_kit::idempotency::IdempotencyRequest;
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::SessionId;
use ensemble_types::page::Limit;
use ensemble_types::sessions::{CreateSession, Session, SessionPage, UpdateSession};
use ensemble_types::text::Text;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::SessionStore;
use crate::domain::change::Change;
use crate::error::Error;
use crate::store::{NewSession, Page};

/// Which sessions.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ListQuery {
    /// Adds the sessions that others share with the caller.
    #[param(inline)]
    include: Option<Include>,
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

pub(crate) async fn create(
    state: State<SessionStore>,
    caller: Caller,
    IdempotentJson { body, key }: IdempotentJson<CreateSession>,
) -> HandlerResult<Upserted<Session>> {
    state.peers.require_machine(caller.user, &body.machine_id).await?;
    let wish = key.map(|key| IdempotencyRequest {
        scope: caller.user.to_string(),
        route: "POST /v1/sessions",
        key: key.key,
        body_hash: key.body_hash,
    });
    let new = NewSession {
        owner: caller.user,
        machine: body.machine_id,
        metadata: body.metadata.into_string(),
        encryption_key: body.encryption_key.into_string(),
        tag: body.tag.map(Text::into_string),
        wish,
    };
    let made = state.store.create_session(new).await?;
    Ok(Upserted { created: made.is_new, body: made.session })
}

pub(crate) async fn list(
    state: State<SessionStore>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> HandlerResult<Json<SessionPage>> {
    Ok(Json(state.store.sessions(query.page(&caller, false)).await?))
}

pub(crate) async fn list_active(
    state: State<SessionStore>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> HandlerResult<Json<SessionPage>> {
    Ok(Json(state.store.sessions(query.page(&caller, true)).await?))
}

pub(crate) async fn read(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
) -> HandlerResult<Json<Session>> {
    Ok(Json(state.store.session(id, caller.user).await?))
}

pub(crate) async fn update(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
    Json(body): Json<UpdateSession>,
) -> HandlerResult<Json<Session>> {
    let change = Change::new(body).map_err(Error::from)?;
    Ok(Json(state.store.update_session(id, caller.user, change).await?))
}

pub(crate) async fn remove(
    state: State<SessionStore>,
    caller: Caller,
    Path(id): Path<SessionId>,
) -> HandlerResult<Json<Deleted>> {
    state.store.delete_session(id, caller.user).await?;
    Ok(Json(Deleted::DONE))
}

impl ListQuery {
    fn page(self, caller: &Caller, active_only: bool) -> Page {
        Page {
            user: caller.user,
            include_shared: self.include == Some(Include::Shared),
            active_only,
            limit: self.limit.get() as usize,
            cursor: self.cursor,
        }
    }
}
