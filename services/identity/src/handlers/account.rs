//! One's own account.

use ensemble_chassis::{Answer, Caller, Json, Reply, State};
use ensemble_types::accounts::{Account, UpdateAccount};

use crate::Identity;
use crate::domain::AccountChange;

pub(crate) async fn read(identity: State<Identity>, caller: Caller) -> Answer<Reply<Account>> {
    Ok(Reply(identity.store.account(caller.user).await?.into()))
}

pub(crate) async fn update(
    identity: State<Identity>,
    caller: Caller,
    Json(body): Json<UpdateAccount>,
) -> Answer<Reply<Account>> {
    let change = AccountChange::new(body)?;
    Ok(Reply(identity.store.change_account(caller.user, change).await?.into()))
}
