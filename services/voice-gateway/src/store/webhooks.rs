//! The ids of webhooks that have been processed, so that a repetition is recognised.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::time::Timestamp;

use super::schema::voice_webhooks::{self, dsl};

/// False: this webhook was recorded before.
pub(crate) fn record(tx: &mut Conn, id: &str) -> Result<bool, StoreError> {
    let row = (dsl::id.eq(id), dsl::received_at.eq(now()));
    let new = on!(tx, |c| diesel::insert_into(voice_webhooks::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(new == 1)
}

/// Deletes the ids that were recorded before `before`; gives how many there were.
pub(crate) fn purge(tx: &mut Conn, before: Timestamp, limit: i64) -> Result<usize, StoreError> {
    let old = voice_webhooks::table.filter(dsl::received_at.lt(before.db()));
    let ids: Vec<String> = on!(tx, |c| old.select(dsl::id).limit(limit).load(c))?;
    on!(tx, |c| diesel::delete(voice_webhooks::table.filter(dsl::id.eq_any(&ids))).execute(c))
}
