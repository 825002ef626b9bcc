//! The table `revocations`: tokens that are refused although they have not expired.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Topic, on};
use ensemble_types::ids::TokenId;
use ensemble_types::time::Timestamp;

use super::schema::revocations;

/// A revocation outlives its token by as much as the clocks of the services may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Published when signing keys or revocations have changed.
pub(crate) fn topic() -> Topic {
    Topic::new("keys", "all")
}

/// Revokes a token that expires at that time.
pub(crate) fn insert(tx: &mut Conn, id: TokenId, expires_at: Timestamp) -> Result<(), StoreError> {
    let until = expires_at.plus(CLOCK_SKEW);
    let row = (revocations::token_id.eq(id.db()), revocations::expires_at.eq(until.db()));
    on!(tx, |c| diesel::insert_into(revocations::table).values(row).on_conflict_do_nothing().execute(c))?;
    tx.notify(topic());
    Ok(())
}

pub(crate) fn unexpired(c: &mut Conn) -> Result<Vec<TokenId>, StoreError> {
    let revoked = revocations::table.filter(revocations::expires_at.gt(now())).select(revocations::token_id);
    on!(c, |c| revoked.load(c))
}

/// Deletes at most `limit` expired revocations. Returns how many there were.
pub(crate) fn delete_expired(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let old = revocations::table.filter(revocations::expires_at.le(now())).limit(limit);
    let old: Vec<TokenId> = on!(tx, |c| old.select(revocations::token_id).load(c))?;
    let old: Vec<DbId> = old.into_iter().map(DbId::from).collect();
    on!(tx, |c| diesel::delete(revocations::table.filter(revocations::token_id.eq_any(old))).execute(c))
}
