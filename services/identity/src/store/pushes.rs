//! The tables of notifications: `push_keys`, `push_subscriptions`, `push_events`, `push_deliveries`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, Topic, on};
use ensemble_types::ids::{DeviceId, UserId};
use ensemble_types::time::Timestamp;

use super::schema::{push_deliveries, push_events, push_keys, push_subscriptions};
use crate::domain::Subscription;

/// The most rows over a bound that are deleted at once: more than one call adds.
const OVER: i64 = 1_000;

/// A delivery that was taken to be tried, and where to.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) user: UserId,
    pub(crate) device: DeviceId,
    pub(crate) attention: String,
    pub(crate) payload: String,
    pub(crate) is_urgent: bool,
    pub(crate) expires_at: Timestamp,
    /// Before this one.
    pub(crate) tries: i32,
    pub(crate) to: Subscription,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = push_deliveries)]
struct DeliveryRow {
    user_id: UserId,
    device_id: DeviceId,
    attention: String,
    payload: String,
    is_urgent: bool,
    expires_at: Timestamp,
    tries: i32,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = push_subscriptions)]
struct SubscriptionRow {
    endpoint: String,
    p256dh: Vec<u8>,
    auth: Vec<u8>,
}

/// Published when there is something to send.
pub(crate) fn topic() -> Topic {
    Topic::new("pushes", "due")
}

/// The sealed private key.
pub(crate) fn key(c: &mut Conn) -> Result<Option<Vec<u8>>, StoreError> {
    on!(c, |c| push_keys::table.select(push_keys::sealed).first(c).optional())
}

/// Stores the key unless there is one.
pub(crate) fn insert_key(tx: &mut Conn, sealed: &[u8]) -> Result<(), StoreError> {
    let row = (push_keys::id.eq(1_i16), push_keys::sealed.eq(sealed));
    on!(tx, |c| diesel::insert_into(push_keys::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(())
}

/// Stores the same key, sealed again.
pub(crate) fn reseal_key(tx: &mut Conn, sealed: &[u8]) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(push_keys::table).set(push_keys::sealed.eq(sealed)).execute(c))?;
    Ok(())
}

/// Sets where a device is reached. What is still to be sent goes there, too.
pub(crate) fn subscribe(tx: &mut Conn, user: UserId, device: DeviceId, to: &Subscription) -> Result<(), StoreError> {
    let place = (
        push_subscriptions::endpoint.eq(&to.endpoint),
        push_subscriptions::p256dh.eq(to.p256dh.as_slice()),
        push_subscriptions::auth.eq(to.auth.as_slice()),
    );
    let row = (push_subscriptions::device_id.eq(device.db()), push_subscriptions::user_id.eq(user.db()), place);
    let insert = diesel::insert_into(push_subscriptions::table).values(row);
    on!(tx, |c| insert.on_conflict(push_subscriptions::device_id).do_update().set(place).execute(c))?;
    Ok(())
}

/// Ends a device's notifications.
pub(crate) fn unsubscribe(tx: &mut Conn, device: DeviceId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(push_subscriptions::table.find(device.db())).execute(c))?;
    let of_device = push_deliveries::table.filter(push_deliveries::device_id.eq(device.db()));
    on!(tx, |c| diesel::delete(of_device).execute(c))?;
    Ok(())
}

/// The same, unless the device has subscribed again since.
pub(crate) fn unsubscribe_from(tx: &mut Conn, device: DeviceId, endpoint: &str) -> Result<(), StoreError> {
    let same = push_subscriptions::table.find(device.db()).filter(push_subscriptions::endpoint.eq(endpoint));
    let count: i64 = on!(tx, |c| same.count().get_result(c))?;
    if count > 0 { unsubscribe(tx, device) } else { Ok(()) }
}

/// The devices of an account that have a subscription.
pub(crate) fn subscribed(c: &mut Conn, user: UserId) -> Result<Vec<DeviceId>, StoreError> {
    let of_user = push_subscriptions::table.filter(push_subscriptions::user_id.eq(user.db()));
    on!(c, |c| of_user.select(push_subscriptions::device_id).load(c))
}

/// Notes an event. False when it was given before.
pub(crate) fn insert_event(
    tx: &mut Conn,
    user: UserId,
    attention: &str,
    purge_at: Timestamp,
) -> Result<bool, StoreError> {
    let row = (
        push_events::user_id.eq(user.db()),
        push_events::attention.eq(attention),
        push_events::purge_at.eq(purge_at.db()),
    );
    let insert = diesel::insert_into(push_events::table).values(row).on_conflict_do_nothing();
    Ok(on!(tx, |c| insert.execute(c))? > 0)
}

/// What a delivery is made of.
pub(crate) struct NewDelivery<'a> {
    pub(crate) user: UserId,
    pub(crate) attention: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) is_urgent: bool,
    pub(crate) expires_at: Timestamp,
}

pub(crate) fn insert_delivery(tx: &mut Conn, device: DeviceId, new: &NewDelivery<'_>) -> Result<(), StoreError> {
    let row = (
        push_deliveries::device_id.eq(device.db()),
        push_deliveries::attention.eq(new.attention),
        push_deliveries::user_id.eq(new.user.db()),
        push_deliveries::payload.eq(new.payload),
        push_deliveries::is_urgent.eq(new.is_urgent),
        push_deliveries::due_at.eq(now()),
        push_deliveries::expires_at.eq(new.expires_at.db()),
        push_deliveries::tries.eq(0),
    );
    on!(tx, |c| diesel::insert_into(push_deliveries::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(())
}

/// Forgets what is still to be sent of an event.
pub(crate) fn withdraw(tx: &mut Conn, user: UserId, attention: &str) -> Result<(), StoreError> {
    let of_event = push_deliveries::table
        .filter(push_deliveries::user_id.eq(user.db()).and(push_deliveries::attention.eq(attention)));
    on!(tx, |c| diesel::delete(of_event).execute(c))?;
    Ok(())
}

/// Of a device, the newest `kept` stay.
pub(crate) fn drop_oldest(tx: &mut Conn, device: DeviceId, kept: i64) -> Result<(), StoreError> {
    let of_device = || push_deliveries::table.filter(push_deliveries::device_id.eq(device.db()));
    let newest = (push_deliveries::expires_at.desc(), push_deliveries::attention);
    let over = of_device().order(newest).offset(kept).limit(OVER).select(push_deliveries::attention);
    let over: Vec<String> = on!(tx, |c| over.load(c))?;
    if !over.is_empty() {
        let over = of_device().filter(push_deliveries::attention.eq_any(&over));
        on!(tx, |c| diesel::delete(over).execute(c))?;
    }
    Ok(())
}

/// The accounts with deliveries that are due, without those that are passed over; who has waited longest comes first.
pub(crate) fn waiting(c: &mut Conn, passed: &[UserId], limit: i64) -> Result<Vec<UserId>, StoreError> {
    let passed: Vec<_> = passed.iter().map(|user| user.db()).collect();
    let waiting = push_deliveries::table
        .filter(push_deliveries::due_at.le(now()).and(push_deliveries::user_id.ne_all(passed)))
        .group_by(push_deliveries::user_id)
        .select(push_deliveries::user_id)
        .order(diesel::dsl::min(push_deliveries::due_at))
        .limit(limit);
    on!(c, |c| waiting.load(c))
}

/// Takes the delivery of an account that is due first; no other process takes it before `until`.
pub(crate) fn take(
    tx: &mut Conn,
    user: UserId,
    (now_is, until): (Timestamp, Timestamp),
) -> Result<Option<Delivery>, StoreError> {
    let due = push_deliveries::table
        .filter(push_deliveries::user_id.eq(user.db()).and(push_deliveries::due_at.le(now())))
        .order(push_deliveries::due_at)
        .limit(1);
    let rows: Vec<DeliveryRow> = on!(
        tx,
        Pg | c | due.select(DeliveryRow::as_select()).for_update().skip_locked().load(c),
        Sqlite | c | due.select(DeliveryRow::as_select()).load(c)
    )?;
    let mut taken = None;
    for row in rows {
        if row.expires_at <= now_is {
            // It could not be sent for a day: it is of no use any more.
            delete_delivery(tx, row.device_id, &row.attention)?;
            continue;
        }
        let this = push_deliveries::table.find((row.device_id.db(), row.attention.clone()));
        let next = (push_deliveries::due_at.eq(until.db()), push_deliveries::tries.eq(row.tries + 1));
        on!(tx, |c| diesel::update(this).set(next).execute(c))?;
        let place = push_subscriptions::table.find(row.device_id.db());
        let place: Option<SubscriptionRow> =
            on!(tx, |c| place.select(SubscriptionRow::as_select()).first(c).optional())?;
        match place {
            Some(place) => taken = Some(row.with(place)),
            None => unsubscribe(tx, row.device_id)?,
        }
    }
    Ok(taken)
}

/// When the next delivery is due, without those of accounts that are passed over.
pub(crate) fn next_due(c: &mut Conn, passed: &[UserId]) -> Result<Option<Timestamp>, StoreError> {
    let passed: Vec<_> = passed.iter().map(|user| user.db()).collect();
    let next = push_deliveries::table
        .filter(push_deliveries::user_id.ne_all(passed))
        .order(push_deliveries::due_at)
        .select(push_deliveries::due_at);
    on!(c, |c| next.first(c).optional())
}

pub(crate) fn delete_delivery(tx: &mut Conn, device: DeviceId, attention: &str) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(push_deliveries::table.find((device.db(), attention))).execute(c))?;
    Ok(())
}

/// Schedules the next try for this time, and stores the number of tries so far.
pub(crate) fn postpone(
    tx: &mut Conn,
    device: DeviceId,
    attention: &str,
    (to, tries): (Timestamp, i32),
) -> Result<(), StoreError> {
    let this = push_deliveries::table.find((device.db(), attention));
    let next = (push_deliveries::due_at.eq(to.db()), push_deliveries::tries.eq(tries));
    on!(tx, |c| diesel::update(this).set(next).execute(c))?;
    Ok(())
}

/// Postpones all deliveries to the device to this time at least.
pub(crate) fn postpone_device(tx: &mut Conn, device: DeviceId, to: Timestamp) -> Result<(), StoreError> {
    let of_device = push_deliveries::table
        .filter(push_deliveries::device_id.eq(device.db()).and(push_deliveries::due_at.lt(to.db())));
    on!(tx, |c| diesel::update(of_device).set(push_deliveries::due_at.eq(to.db())).execute(c))?;
    Ok(())
}

/// Deletes events that will not be sent here again, at most `limit`, and returns how many.
pub(crate) fn delete_over(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    let over = push_events::table.filter(push_events::purge_at.le(now())).limit(limit);
    let over: Vec<(UserId, String)> = on!(tx, |c| over.select((push_events::user_id, push_events::attention)).load(c))?;
    for (user, attention) in &over {
        on!(tx, |c| diesel::delete(push_events::table.find((user.db(), attention))).execute(c))?;
    }
    Ok(over.len())
}

impl DeliveryRow {
    fn with(self, place: SubscriptionRow) -> Delivery {
        Delivery {
            user: self.user_id,
            device: self.device_id,
            attention: self.attention,
            payload: self.payload,
            is_urgent: self.is_urgent,
            expires_at: self.expires_at,
            tries: self.tries,
            to: Subscription { endpoint: place.endpoint, p256dh: place.p256dh, auth: place.auth },
        }
    }
}
