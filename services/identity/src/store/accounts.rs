//! The table `accounts`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::schema::accounts;
use crate::domain::{Account, ContentKey};

#[derive(Queryable, Selectable)]
#[diesel(table_name = accounts)]
struct Row {
    id: UserId,
    public_key: Vec<u8>,
    content_public_key: Option<Vec<u8>>,
    content_public_key_signature: Option<Vec<u8>>,
    display_name: Option<String>,
    created_at: Timestamp,
    client_state: Option<String>,
    client_state_version: i64,
}

pub(crate) fn find(c: &mut Conn, id: UserId) -> Result<Option<Account>, StoreError> {
    let query = accounts::table.find(id.db());
    let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.account(c)).transpose()
}

/// Whether there is an account.
pub(crate) fn is_any(c: &mut Conn) -> Result<bool, StoreError> {
    let query = accounts::table.select(accounts::id).limit(1);
    let first: Option<UserId> = on!(c, |c| query.first(c).optional())?;
    Ok(first.is_some())
}

/// Finds an account and locks it until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, id: UserId) -> Result<Option<Account>, StoreError> {
    let query = accounts::table.find(id.db());
    let row: Option<Row> = on!(
        tx,
        Pg | c | query.select(Row::as_select()).for_update().first(c).optional(),
        Sqlite | c | query.select(Row::as_select()).first(c).optional()
    )?;
    row.map(|row| row.account(tx)).transpose()
}

/// Writes what a user can change.
pub(crate) fn update(tx: &mut Conn, account: &Account) -> Result<(), StoreError> {
    let key = account.content_key.as_ref();
    let changed = (
        accounts::display_name.eq(&account.display_name),
        accounts::content_public_key.eq(key.map(|key| key.public.as_slice())),
        accounts::content_public_key_signature.eq(key.map(|key| key.signature.as_slice())),
        accounts::client_state.eq(&account.client_state),
        accounts::client_state_version.eq(account.client_state_version),
    );
    on!(tx, |c| diesel::update(accounts::table.find(account.id.db())).set(changed).execute(c))?;
    Ok(())
}

pub(crate) fn find_by_key(tx: &mut Conn, public_key: &[u8; 32]) -> Result<Option<UserId>, StoreError> {
    let query = accounts::table.filter(accounts::public_key.eq(public_key.as_slice())).select(accounts::id);
    on!(tx, |c| query.first(c).optional())
}

/// Makes an account. `None` if another transaction has made one with the same key.
pub(crate) fn insert(tx: &mut Conn, public_key: &[u8; 32]) -> Result<Option<UserId>, StoreError> {
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
            client_state: self.client_state,
            client_state_version: self.client_state_version,
        })
    }
}
