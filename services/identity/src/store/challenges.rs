//! The table `challenges`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::time::Timestamp;

use super::schema::challenges;

pub(crate) fn insert(tx: &mut Conn, challenge: &[u8; 32], expires_at: Timestamp) -> Result<(), StoreError> {
    let row = (challenges::challenge.eq(challenge.as_slice()), challenges::expires_at.eq(expires_at.db()));
    on!(tx, |c| diesel::insert_into(challenges::table).values(row).execute(c))?;
    Ok(())
}

/// Deletes a challenge. True if it was valid; of several requests with the same challenge one gets true.
pub(crate) fn take(tx: &mut Conn, challenge: &[u8; 32]) -> Result<bool, StoreError> {
    let row = challenges::table.find(challenge.as_slice());
    let was_valid: Option<bool> =
        on!(tx, |c| diesel::delete(row).returning(challenges::expires_at.gt(now())).get_result(c).optional())?;
    Ok(was_valid == Some(true))
}

/// Deletes at most `limit` expired challenges. Returns how many there were.
pub(crate) fn delete_expired(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let old = challenges::table.filter(challenges::expires_at.le(now())).limit(limit);
    let old: Vec<Vec<u8>> = on!(tx, |c| old.select(challenges::challenge).load(c))?;
    on!(tx, |c| diesel::delete(challenges::table.filter(challenges::challenge.eq_any(&old))).execute(c))
}

pub(crate) fn count(c: &mut Conn) -> Result<i64, StoreError> {
    on!(c, |c| challenges::table.count().get_result(c))
}
