//! The table `signing_keys`.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::TokenId;
use ensemble_types::time::Timestamp;

use super::schema::signing_keys;
use crate::domain::Published;

/// A signing key as it is stored.
pub(crate) struct KeyRow {
    pub(crate) published: Published,
    pub(crate) key_id: String,
    pub(crate) public_key: [u8; 32],
    pub(crate) sealed: Vec<u8>,
}

/// Everything that verifying needs, at one moment.
pub(crate) struct KeyTable {
    /// The oldest first.
    pub(crate) keys: Vec<KeyRow>,
    pub(crate) revoked: Vec<TokenId>,
    /// Removed devices whose tokens have not all expired.
    pub(crate) removed: Vec<[u8; 32]>,
    pub(crate) now: Timestamp,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = signing_keys)]
struct Row {
    generation: i64,
    key_id: String,
    public_key: Vec<u8>,
    sealed: Vec<u8>,
    signs_from: Timestamp,
}

/// All keys, the oldest first.
pub(crate) fn load(c: &mut Conn) -> Result<Vec<KeyRow>, StoreError> {
    let rows: Vec<Row> =
        on!(c, |c| signing_keys::table.order(signing_keys::generation).select(Row::as_select()).load(c))?;
    let key = |row: Row| {
        let public_key = row.public_key.as_slice().try_into();
        Ok(KeyRow {
            published: Published { generation: row.generation, signs_from: row.signs_from },
            key_id: row.key_id,
            public_key: public_key.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            sealed: row.sealed,
        })
    };
    rows.into_iter().map(key).collect()
}

/// Adds a key, unless there is one of its generation.
pub(crate) fn insert(tx: &mut Conn, key: &KeyRow) -> Result<(), StoreError> {
    let row = (
        signing_keys::generation.eq(key.published.generation),
        signing_keys::key_id.eq(&key.key_id),
        signing_keys::public_key.eq(key.public_key.as_slice()),
        signing_keys::sealed.eq(&key.sealed),
        signing_keys::signs_from.eq(key.published.signs_from.db()),
    );
    on!(tx, |c| diesel::insert_into(signing_keys::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(())
}

pub(crate) fn delete(tx: &mut Conn, generations: &[i64]) -> Result<(), StoreError> {
    for generation in generations {
        on!(tx, |c| diesel::delete(signing_keys::table.find(generation)).execute(c))?;
    }
    Ok(())
}

/// Replaces the sealed form of a key.
pub(crate) fn reseal(tx: &mut Conn, generation: i64, sealed: &[u8]) -> Result<(), StoreError> {
    let row = diesel::update(signing_keys::table.find(generation));
    on!(tx, |c| row.set(signing_keys::sealed.eq(sealed)).execute(c)).map(drop)
}
