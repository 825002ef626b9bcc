//! Removing what deleted sessions leave behind, in small transactions, so that nobody waits for it.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::ids::SessionId;

use super::Store;
use super::schema::{links, messages, session_contents, sessions, shares, viewings};
use crate::domain::link::VIEWING;
use crate::error::Error;

/// Messages that one transaction removes.
const BATCH: i64 = 500;

/// What one step of the purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purged {
    /// There may be more.
    Some,
    /// No deleted session is left, or others are at work on those that are.
    Nothing,
}

impl Store {
    /// Removes a batch of one deleted session; the session itself when nothing else is left of it.
    pub(crate) async fn purge_step(&self) -> Result<Purged, Error> {
        self.db.write("purge deleted sessions", |tx| Ok(step(tx)?)).await
    }

    /// Forgets viewings that are over.
    pub(crate) async fn forget_viewings(&self) -> Result<(), Error> {
        self.db
            .write("forget viewings", |tx| {
                let over = tx.now()?.minus(VIEWING).db();
                on!(tx, |c| diesel::delete(viewings::table.filter(viewings::viewed_at.lt(over))).execute(c))?;
                Ok(())
            })
            .await
    }
}

fn step(tx: &mut Conn) -> Result<Purged, StoreError> {
    let query = sessions::table
        .filter(sessions::deleted_at.is_not_null())
        .order(sessions::deleted_at)
        .limit(1)
        .select(sessions::id);
    // Replicas share the work instead of waiting for each other.
    let found: Option<SessionId> =
        on!(tx, Pg | c | query.for_update().skip_locked().first(c).optional(), Sqlite | c | query.first(c).optional())?;
    let Some(session) = found else { return Ok(Purged::Nothing) };
    let lowest: Option<i64> = on!(tx, |c| messages::table
        .filter(messages::session_id.eq(session.db()))
        .select(diesel::dsl::min(messages::seq))
        .get_result(c))?;
    if let Some(lowest) = lowest {
        on!(tx, |c| diesel::delete(
            messages::table
                .filter(messages::session_id.eq(session.db()))
                .filter(messages::seq.lt(lowest.saturating_add(BATCH)))
        )
        .execute(c))?;
        return Ok(Purged::Some);
    }
    on!(tx, |c| diesel::delete(shares::table.filter(shares::session_id.eq(session.db()))).execute(c))?;
    on!(tx, |c| diesel::delete(viewings::table.filter(viewings::session_id.eq(session.db()))).execute(c))?;
    on!(tx, |c| diesel::delete(links::table.find(session.db())).execute(c))?;
    on!(tx, |c| diesel::delete(session_contents::table.find(session.db())).execute(c))?;
    on!(tx, |c| diesel::delete(sessions::table.find(session.db())).execute(c))?;
    Ok(Purged::Some)
}
