//! Machine tokens: made by a user, for one machine.

use ensemble_chassis::{Caller, Created, HandlerResult, Json, Path, Query, State};
use ensemble_types::accounts::{CreateMachineToken, CreatedMachineToken, MachineToken, MachineTokenPage};
use ensemble_types::deleted::Deleted;
use ensemble_types::ids::TokenId;
use ensemble_types::page::Limit;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::Identity;
use crate::error::Error;
use crate::store::After;

/// Which page.
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
    identity: State<Identity>,
    caller: Caller,
    Json(body): Json<CreateMachineToken>,
) -> HandlerResult<Created<CreatedMachineToken>> {
    let lives = identity.rules.lifetimes.machine(body.expires_in_seconds)?;
    let limit = identity.rules.machine_token_limit;
    let made = identity.store.make_machine_token(caller.user, body.machine_id, lives, limit).await?;
    let token = identity.ring.machine_token(&made).map_err(Error::from)?;
    tracing::info!(user.id = %caller.user, machine.id = %made.machine, token.id = %made.id, "Made a machine token");
    Ok(Created(CreatedMachineToken { id: made.id, token, machine_id: made.machine, expires_at: made.expires_at }))
}

pub(crate) async fn list(
    identity: State<Identity>,
    caller: Caller,
    Query(query): Query<PageQuery>,
) -> HandlerResult<Json<MachineTokenPage>> {
    let after = query.cursor.as_deref().map_or_else(|| Ok(After::start()), After::decode)?;
    let page = identity.store.machine_tokens(caller.user, after, query.limit.get()).await?;
    let tokens = page.tokens.into_iter().map(MachineToken::from).collect();
    Ok(Json(MachineTokenPage { tokens, next_cursor: page.next.map(After::encode) }))
}

pub(crate) async fn revoke(
    identity: State<Identity>,
    caller: Caller,
    Path(id): Path<TokenId>,
) -> HandlerResult<Json<Deleted>> {
    if id == caller.token {
        identity.store.revoke(id, caller.expires_at).await?;
    } else {
        identity.store.revoke_machine_token(caller.user, id).await?;
    }
    tracing::info!(user.id = %caller.user, token.id = %id, "Revoked a token");
    // Here it holds at once; the others are woken by the commit.
    if let Err(error) = identity.ring.turn().await {
        tracing::warn!(%error, "The keys could not be read anew after a revocation");
    }
    Ok(Json(Deleted::DONE))
}
