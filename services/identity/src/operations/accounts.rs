//! Reading and changing accounts.

use ensemble_store_kit::Db;
use ensemble_types::ids::UserId;

use crate::domain::{Account, AccountChange};
use crate::error::Error;
use crate::store::accounts;

pub(crate) async fn read(db: &Db, id: UserId) -> Result<Account, Error> {
    db.read("read an account", move |c| accounts::find(c, id)?.ok_or(Error::AccountNotFound)).await
}

pub(crate) async fn update(db: &Db, id: UserId, change: AccountChange) -> Result<Account, Error> {
    db.write("update an account", move |tx| {
        let account = accounts::lock(tx, id)?.ok_or(Error::AccountNotFound)?.change(change.clone())?;
        accounts::update(tx, &account)?;
        Ok(account)
    })
    .await
}
