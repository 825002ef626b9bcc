//! Machine tokens: a user makes one for one machine.

use ensemble_chassis::{Caller, Created, HandlerResult, Json, Path, Query, State};
use ensemble_types::accounts::{CreateMachineToken, CreatedMachineToken, MachineToken, MachineTokenPage};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::TokenId;
use ensemble_types::page::Limit;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Identity;
use crate::error::Error;
use crate::operations::tokens;
use crate::operations::tokens::After;

/// Selects a page.
#[derive(Deserialize, IntoParams)]
pub(crate) struct PageQuery {
    /// How many, 100 unless said otherwise.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 500>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

pub(crate) async fn create(
    service: State<Identity>,
    caller: Caller,
    Json(body): Json<CreateMachineToken>,
) -> HandlerResult<Created<CreatedMachineToken>> {
    let (record, token) = tokens::create(&service, &caller, body.machine_id, body.expires_in_seconds).await?;
    let (machine_id, expires_at) = (record.machine, record.expires_at);
    let body = CreatedMachineToken { id: record.id, token, machine_id, expires_at };
    Ok(Created { location: "/v1/auth/tokens".to_owned(), body })
}

pub(crate) async fn list(
    service: State<Identity>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> HandlerResult<Json<MachineTokenPage>> {
    let after = query.cursor.as_deref().map_or_else(|| Ok(After::start()), After::decode).map_err(Error::from)?;
    let page = tokens::page(&service.db, caller.user, after, query.limit.get()).await.map_err(Error::from)?;
    let tokens = page.tokens.into_iter().map(MachineToken::from).collect();
    Ok(Json(MachineTokenPage { tokens, next_cursor: page.next.map(After::encode) }))
}

pub(crate) async fn revoke(
    service: State<Identity>,
    caller: Caller,
    Path(id): Path<TokenId>,
) -> HandlerResult<Json<Deleted>> {
    tokens::revoke(&service, &caller, id).await?;
    Ok(Json(Deleted::DONE))
}
