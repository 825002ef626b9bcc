//! Removal of what deleted sessions leave behind.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::SessionId;
use ensemble_types::time::Timestamp;

use super::schema::{links, messages, session_contents, sessions, shares, viewings};

/// Locks a deleted session. Skips those that another replica is working on.
pub(crate) fn next_deleted(tx: &mut Conn) -> Result<Option<SessionId>, StoreError> {
    let query = sessions::table
        .filter(sessions::deleted_at.is_not_null())
        .order(sessions::deleted_at)
        .limit(1)
        .select(sessions::id);
    on!(tx, Pg | c | query.for_update().skip_locked().first(c).optional(), Sqlite | c | query.first(c).optional())
}

/// Some sessions that have ended or are archived, and have not changed since this time.
pub(crate) fn over_since(tx: &mut Conn, cutoff: Timestamp, limit: i64) -> Result<Vec<SessionId>, StoreError> {
    let is_over = sessions::ended_at.is_not_null().or(sessions::archived);
    let query = sessions::table
        .filter(is_over.and(sessions::deleted_at.is_null()).and(sessions::updated_at.lt(cutoff.db())))
        .order(sessions::updated_at)
        .limit(limit)
        .select(sessions::id);
    on!(tx, Pg | c | query.for_no_key_update().skip_locked().load(c), Sqlite | c | query.load(c))
}

/// Hides a session that is not kept any longer.
pub(crate) fn mark_expired(tx: &mut Conn, id: SessionId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(sessions::table.find(id.db())).set(sessions::deleted_at.eq(now().nullable())).execute(c))
        .map(drop)
}

/// Removes up to `limit` of a session's oldest messages. Returns how many; 0 when there was none.
pub(crate) fn remove_messages(tx: &mut Conn, session: SessionId, limit: i64) -> Result<usize, StoreError> {
    let of_session = messages::session_id.eq(session.db());
    let oldest: Option<i64> =
        on!(tx, |c| messages::table.filter(of_session).select(diesel::dsl::min(messages::seq)).get_result(c))?;
    let Some(oldest) = oldest else { return Ok(0) };
    let batch = of_session.and(messages::seq.lt(oldest.saturating_add(limit)));
    on!(tx, |c| diesel::delete(messages::table.filter(batch)).execute(c))
}

/// Removes a session that has no messages left, with all its other rows.
pub(crate) fn remove_session(tx: &mut Conn, session: SessionId) -> Result<(), StoreError> {
    let id = session.db();
    on!(tx, |c| diesel::delete(shares::table.filter(shares::session_id.eq(id))).execute(c))?;
    on!(tx, |c| diesel::delete(viewings::table.filter(viewings::session_id.eq(id))).execute(c))?;
    on!(tx, |c| diesel::delete(links::table.find(id)).execute(c))?;
    on!(tx, |c| diesel::delete(session_contents::table.find(id)).execute(c))?;
    on!(tx, |c| diesel::delete(sessions::table.find(id)).execute(c)).map(drop)
}
