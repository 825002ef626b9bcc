//! The table `accounts`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::Store;
use super::schema::accounts;
use crate::domain::{Account, AccountChange, ContentKey};
use crate::error::Error;

#[derive(Queryable, Selectable)]
#[diesel(table_name = accounts)]
struct Row {
    id: UserId,
    public_key: Vec<u8>,
    content_public_key: Option<Vec<u8>>,
    content_public_key_signature: Option<Vec<u8>>,
    display_name: Option<String>,
    created_at: Timestamp,
}

impl Store {
    pub(crate) async fn account(&self, id: UserId) -> Result<Account, Error> {
        self.db
            .read("read an account", move |c| {
                let query = accounts::table.find(id.db());
                let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
                Ok(row.ok_or(Error::NoSuchAccount)?.account(c)?)
            })
            .await
    }

    pub(crate) async fn change_account(&self, id: UserId, change: AccountChange) -> Result<Account, Error> {
        self.db
            .write("change an account", move |tx| {
                let query = accounts::table.find(id.db());
                let row: Option<Row> = on!(
                    tx,
                    Pg | c | query.select(Row::as_select()).for_update().first(c).optional(),
                    Sqlite | c | query.select(Row::as_select()).first(c).optional()
                )?;
                let account = row.ok_or(Error::NoSuchAccount)?.account(tx)?.change(change.clone())?;
                let key = account.content_key.as_ref();
                let changed = (
                    accounts::display_name.eq(&account.display_name),
                    accounts::content_public_key.eq(key.map(|key| key.public.as_slice())),
                    accounts::content_public_key_signature.eq(key.map(|key| key.signature.as_slice())),
                );
                on!(tx, |c| diesel::update(query).set(changed).execute(c))?;
                Ok(account)
            })
            .await
    }
}

/// The account of a public key.
pub(super) fn find(tx: &mut Conn, public_key: &[u8; 32]) -> Result<Option<UserId>, StoreError> {
    let query = accounts::table.filter(accounts::public_key.eq(public_key.as_slice())).select(accounts::id);
    on!(tx, |c| query.first(c).optional())
}

/// A new account, unless somebody with the same key was quicker.
pub(super) fn insert(tx: &mut Conn, public_key: &[u8; 32]) -> Result<Option<UserId>, StoreError> {
    let id = UserId::generate();
    let row =
        (accounts::id.eq(id.db()), accounts::public_key.eq(public_key.as_slice()), accounts::created_at.eq(now()));
    let inserted = on!(tx, |c| diesel::insert_into(accounts::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok((inserted == 1).then_some(id))
}

impl Row {
    fn account(self, c: &Conn) -> Result<Account, StoreError> {
        let bad = |what: &'static str| StoreError::bad_row(c.operation(), what);
        let content_key = match (self.content_public_key, self.content_public_key_signature) {
            (Some(public), Some(signature)) => Some(ContentKey {
                public: public.try_into().map_err(|_| bad("a content key has the wrong length"))?,
                signature: signature.try_into().map_err(|_| bad("a content key's signature has the wrong length"))?,
            }),
            (None, None) => None,
            _ => return Err(bad("a content key without its signature")),
        };
        Ok(Account {
            id: self.id,
            public_key: self.public_key.try_into().map_err(|_| bad("a public key has the wrong length"))?,
            content_key,
            display_name: self.display_name,
            created_at: self.created_at,
        })
    }
}
