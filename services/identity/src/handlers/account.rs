//! One's own account.

use ensemble_chassis::{Caller, HandlerResult, Json, State};
use ensemble_types::accounts::{Account, UpdateAccount};

use crate::Identity;
use crate::domain::AccountChange;

pub(crate) async fn read(identity: State<Identity>, caller: Caller) -> HandlerResult<Json<Account>> {
    Ok(Json(identity.store.account(caller.user).await?.into()))
}

pub(crate) async fn update(
    identity: State<Identity>,
    caller: Caller,
    Json(body): Json<UpdateAccount>,
) -> HandlerResult<Json<Account>> {
    let change = AccountChange::new(body)?;
    Ok(Json(identity.store.change_account(caller.user, change).await?.into()))
}
