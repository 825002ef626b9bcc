//! The outbox of webhooks to the operator's endpoints.

use diesel::dsl::{count_star, min};
use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Topic, on};
use ensemble_types::time::Timestamp;

use super::schema::voice_webhook_deliveries::{self, dsl};
use crate::domain::announcement::Announcement;

/// One that was taken to be tried.
#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = voice_webhook_deliveries)]
pub(crate) struct Delivery {
    pub(crate) id: String,
    pub(crate) body: String,
    pub(crate) expires_at: Timestamp,
    /// Before this one.
    pub(crate) tries: i32,
}

/// Published when there is something to send.
pub(crate) fn topic() -> Topic {
    Topic::new("voice-webhooks", "due")
}

/// Stores one unless it is stored.
pub(crate) fn insert(
    tx: &mut Conn,
    endpoint: &str,
    new: &Announcement,
    (now_is, expires_at): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    let row = (
        dsl::endpoint.eq(endpoint),
        dsl::id.eq(&new.id),
        dsl::body.eq(&new.body),
        dsl::created_at.eq(now_is.db()),
        dsl::due_at.eq(now_is.db()),
        dsl::expires_at.eq(expires_at.db()),
        dsl::tries.eq(0),
    );
    let insert = diesel::insert_into(voice_webhook_deliveries::table).values(row).on_conflict_do_nothing();
    on!(tx, |c| insert.execute(c)).map(drop)
}

/// Takes those of an endpoint that are due, the oldest first; no other process takes them before `until`.
pub(crate) fn take(tx: &mut Conn, endpoint: &str, limit: i64, until: Timestamp) -> Result<Vec<Delivery>, StoreError> {
    let due = dsl::voice_webhook_deliveries
        .filter(dsl::endpoint.eq(endpoint).and(dsl::due_at.le(now())))
        .order((dsl::due_at, dsl::created_at, dsl::id))
        .limit(limit);
    let taken: Vec<Delivery> = on!(
        tx,
        Pg | c | due.select(Delivery::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due.select(Delivery::as_select()).load(c)
    )?;
    for delivery in &taken {
        postpone(tx, endpoint, &delivery.id, (until, delivery.tries + 1))?;
    }
    Ok(taken)
}

/// When the next one of an endpoint is due.
pub(crate) fn next_due(c: &mut Conn, endpoint: &str) -> Result<Option<Timestamp>, StoreError> {
    let next = dsl::voice_webhook_deliveries.filter(dsl::endpoint.eq(endpoint)).order(dsl::due_at).select(dsl::due_at);
    on!(c, |c| next.first(c).optional())
}

pub(crate) fn delete(tx: &mut Conn, endpoint: &str, id: &str) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(dsl::voice_webhook_deliveries.find((endpoint, id))).execute(c)).map(drop)
}

/// Schedules the next try for this time, and stores the number of tries so far.
pub(crate) fn postpone(
    tx: &mut Conn,
    endpoint: &str,
    id: &str,
    (to, tries): (Timestamp, i32),
) -> Result<(), StoreError> {
    let this = dsl::voice_webhook_deliveries.find((endpoint, id));
    let next = (dsl::due_at.eq(to.db()), dsl::tries.eq(tries));
    on!(tx, |c| diesel::update(this).set(next).execute(c)).map(drop)
}

/// How many an endpoint still has to get, and since when the oldest waits.
pub(crate) fn waiting(c: &mut Conn, endpoint: &str) -> Result<(i64, Option<Timestamp>), StoreError> {
    let of_endpoint = dsl::voice_webhook_deliveries.filter(dsl::endpoint.eq(endpoint));
    on!(c, |c| of_endpoint.select((count_star(), min(dsl::created_at))).first(c))
}

/// Deletes those of endpoints that no replica knows any more, once they are too old; gives how many there were.
pub(crate) fn purge(tx: &mut Conn, before: Timestamp, limit: i64) -> Result<usize, StoreError> {
    let old = dsl::voice_webhook_deliveries.filter(dsl::expires_at.lt(before.db())).limit(limit);
    let old: Vec<(String, String)> = on!(tx, |c| old.select((dsl::endpoint, dsl::id)).load(c))?;
    for (endpoint, id) in &old {
        delete(tx, endpoint, id)?;
    }
    Ok(old.len())
}
