//! The table `device_links`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Topic, on};
use ensemble_types::ids::UserId;
use ensemble_types::time::Timestamp;

use super::schema::device_links;
use crate::domain::{DeviceLink, LinkId, LinkStep, encode};

#[derive(Queryable, Selectable)]
#[diesel(table_name = device_links)]
struct Row {
    user_id: UserId,
    state: String,
    request: Option<String>,
    answer: Option<String>,
    expires_at: Timestamp,
    purge_at: Timestamp,
    local: bool,
    again: bool,
}

/// Published when a link has changed.
pub(crate) fn topic(id: &LinkId) -> Topic {
    Topic::new("device-link", encode(id))
}

/// The number of an account's links that can still be used.
pub(crate) fn count_open(tx: &mut Conn, user: UserId) -> Result<i64, StoreError> {
    let open = device_links::table
        .filter(device_links::user_id.eq(user.db()))
        .filter(device_links::expires_at.gt(now()))
        .filter(device_links::state.eq_any([LinkStep::Waiting.as_str(), LinkStep::Asked.as_str()]));
    on!(tx, |c| open.count().get_result(c))
}

pub(crate) fn insert(tx: &mut Conn, link: &DeviceLink) -> Result<(), StoreError> {
    let row = (
        device_links::id.eq(link.id.as_slice()),
        device_links::user_id.eq(link.user.db()),
        device_links::state.eq(link.step.as_str()),
        device_links::expires_at.eq(link.expires_at.db()),
        device_links::purge_at.eq(link.purge_at.db()),
    );
    on!(tx, |c| diesel::insert_into(device_links::table).values(row).execute(c))?;
    Ok(())
}

pub(crate) fn find(c: &mut Conn, id: &LinkId) -> Result<Option<DeviceLink>, StoreError> {
    let query = device_links::table.find(id.as_slice());
    let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.link(*id, c)).transpose()
}

/// Finds a link and locks it until the transaction ends.
pub(crate) fn lock(tx: &mut Conn, id: &LinkId) -> Result<Option<DeviceLink>, StoreError> {
    let query = device_links::table.find(id.as_slice());
    let row: Option<Row> = on!(
        tx,
        Pg | c | query.select(Row::as_select()).for_update().first(c).optional(),
        Sqlite | c | query.select(Row::as_select()).first(c).optional()
    )?;
    row.map(|row| row.link(*id, tx)).transpose()
}

/// Writes the next step of a link, and wakes who waits for it.
pub(crate) fn update(tx: &mut Conn, link: &DeviceLink) -> Result<(), StoreError> {
    let bad = |error| StoreError::bad_row("update a device link", error);
    let request = link.request.as_ref().map(serde_json::to_string).transpose().map_err(bad)?;
    let changed = (
        device_links::state.eq(link.step.as_str()),
        device_links::request.eq(request),
        device_links::answer.eq(&link.answer),
        device_links::purge_at.eq(link.purge_at.db()),
        device_links::local.eq(link.is_local),
        device_links::again.eq(link.is_asked_again),
    );
    on!(tx, |c| diesel::update(device_links::table.find(link.id.as_slice())).set(changed).execute(c))?;
    tx.notify(topic(&link.id));
    Ok(())
}

/// Deletes at most `limit` links that ended a while ago. Returns how many there were.
pub(crate) fn delete_over(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let over = device_links::table.filter(device_links::purge_at.le(now())).limit(limit);
    let over: Vec<Vec<u8>> = on!(tx, |c| over.select(device_links::id).load(c))?;
    on!(tx, |c| diesel::delete(device_links::table.filter(device_links::id.eq_any(&over))).execute(c))
}

impl Row {
    fn link(self, id: LinkId, c: &Conn) -> Result<DeviceLink, StoreError> {
        let step = LinkStep::ALL.into_iter().find(|step| step.as_str() == self.state);
        let request = self.request.as_deref().map(serde_json::from_str).transpose();
        Ok(DeviceLink {
            id,
            user: self.user_id,
            step: step.ok_or_else(|| StoreError::bad_row(c.operation(), "a link has an unknown state"))?,
            request: request.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            answer: self.answer,
            expires_at: self.expires_at,
            purge_at: self.purge_at,
            is_local: self.local,
            is_asked_again: self.again,
        })
    }
}
