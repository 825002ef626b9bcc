//! The caller's own account.

use ensemble_chassis::{Caller, HandlerResult, Json, State};
use ensemble_types::accounts::{Account, UpdateAccount};

use crate::Identity;
use crate::domain::AccountChange;
use crate::operations::accounts;

pub(crate) async fn read(service: State<Identity>, caller: Caller) -> HandlerResult<Json<Account>> {
    Ok(Json(accounts::read(&service.db, caller.user).await?.into()))
}

pub(crate) async fn update(
    service: State<Identity>,
    caller: Caller,
    Json(body): Json<UpdateAccount>,
) -> HandlerResult<Json<Account>> {
    let change = AccountChange::new(body)?;
    Ok(Json(accounts::update(&service.db, caller.user, change).await?.into()))
}
