//! The table `devices`.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::devices::{DeviceKind, DeviceName, Role};
use ensemble_types::ids::{DeviceId, MachineId, UserId};
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;

use super::revocations;
use super::schema::devices;
use crate::domain::{Device, kinds, kinds_text};

/// A removed device is remembered longer than its tokens live by as much as the clocks of the services may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

#[derive(Queryable, Selectable)]
#[diesel(table_name = devices)]
struct Row {
    id: DeviceId,
    user_id: UserId,
    public_key: Vec<u8>,
    box_key: Vec<u8>,
    role: String,
    kind: String,
    name: Option<String>,
    name_salt: Option<String>,
    machine_id: Option<String>,
    created_at: Timestamp,
    last_seen_at: Option<Timestamp>,
    removed_at: Option<Timestamp>,
    tokens_until: Option<Timestamp>,
    machine_deleted_at: Option<Timestamp>,
    notify: Option<String>,
}

/// Finds a device and locks it until the transaction ends.
pub(crate) fn lock_by_key(tx: &mut Conn, key: &[u8; 32]) -> Result<Option<Device>, StoreError> {
    let query = devices::table.filter(devices::public_key.eq(key.as_slice()));
    let row: Option<Row> = on!(
        tx,
        Pg | c | query.select(Row::as_select()).for_update().first(c).optional(),
        Sqlite | c | query.select(Row::as_select()).first(c).optional()
    )?;
    row.map(|row| row.device(tx)).transpose()
}

/// The devices in the newest list of an account, the oldest first.
pub(crate) fn of_account(c: &mut Conn, user: UserId) -> Result<Vec<Device>, StoreError> {
    let query = devices::table
        .filter(devices::user_id.eq(user.db()))
        .filter(devices::removed_at.is_null())
        .order((devices::created_at, devices::id));
    let rows: Vec<Row> = on!(c, |c| query.select(Row::as_select()).load(c))?;
    rows.into_iter().map(|row| row.device(c)).collect()
}

/// Whether one of these keys is or was in the list of any account.
pub(crate) fn is_any_known(tx: &mut Conn, keys: &[[u8; 32]]) -> Result<bool, StoreError> {
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 32]>::as_slice).collect();
    let known: i64 = on!(tx, |c| devices::table.filter(devices::public_key.eq_any(&keys)).count().get_result(c))?;
    Ok(known > 0)
}

pub(crate) fn insert(tx: &mut Conn, device: &Device) -> Result<(), StoreError> {
    let row = (
        devices::id.eq(device.id.db()),
        devices::user_id.eq(device.user.db()),
        devices::public_key.eq(device.public_key.as_slice()),
        devices::box_key.eq(device.box_key.as_slice()),
        devices::role.eq(device.role.as_str()),
        devices::kind.eq(device.kind.as_str()),
        devices::name.eq(device.name.as_ref().map(|name| &*name.name)),
        devices::name_salt.eq(device.name.as_ref().map(|name| &*name.salt)),
        devices::machine_id.eq(device.machine.as_ref().map(|machine| machine.as_str())),
        devices::created_at.eq(device.created_at.db()),
        devices::tokens_until.eq(device.tokens_until.map(|until| until.plus(CLOCK_SKEW)).db()),
    );
    on!(tx, |c| diesel::insert_into(devices::table).values(row).execute(c))?;
    Ok(())
}

/// Writes what a list can change of a device that stays, its name, and what it is notified of.
pub(crate) fn update(tx: &mut Conn, device: &Device) -> Result<(), StoreError> {
    let changed = (
        devices::role.eq(device.role.as_str()),
        devices::box_key.eq(device.box_key.as_slice()),
        devices::name.eq(device.name.as_ref().map(|name| &*name.name)),
        devices::name_salt.eq(device.name.as_ref().map(|name| &*name.salt)),
        devices::notify.eq(kinds_text(&device.notify)),
    );
    on!(tx, |c| diesel::update(devices::table.find(device.id.db())).set(changed).execute(c))?;
    Ok(())
}

/// Marks a device as removed. Its tokens are refused everywhere soon after the commit.
pub(crate) fn remove(tx: &mut Conn, id: DeviceId, at: Timestamp) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(devices::table.find(id.db())).set(devices::removed_at.eq(at.db())).execute(c))?;
    tx.notify(revocations::topic());
    Ok(())
}

/// Marks the devices of a deleted machine that were listed until then.
pub(crate) fn machine_deleted(
    tx: &mut Conn,
    user: UserId,
    machine: &MachineId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let of_machine = devices::table
        .filter(devices::user_id.eq(user.db()))
        .filter(devices::machine_id.eq(machine.as_str()))
        .filter(devices::created_at.le(at.db()))
        .filter(devices::machine_deleted_at.is_null());
    on!(tx, |c| diesel::update(of_machine).set(devices::machine_deleted_at.eq(at.db())).execute(c))?;
    Ok(())
}

/// Remembers when a device was seen last, to the minute.
pub(crate) fn seen(tx: &mut Conn, device: &Device, at: Timestamp) -> Result<(), StoreError> {
    let minute = Timestamp::from_unix_seconds(at.unix_seconds() / 60 * 60);
    if device.last_seen_at == Some(minute) {
        return Ok(());
    }
    let row = diesel::update(devices::table.find(device.id.db())).set(devices::last_seen_at.eq(minute.db()));
    on!(tx, |c| row.execute(c))?;
    Ok(())
}

/// Remembers until when a token lives that a device asked for. The caller holds the row, and the device is not removed.
pub(crate) fn gave_token(tx: &mut Conn, device: &Device, expires_at: Timestamp) -> Result<(), StoreError> {
    let until = expires_at.plus(CLOCK_SKEW);
    if device.tokens_until.is_some_and(|known| known >= until) {
        return Ok(());
    }
    let row = diesel::update(devices::table.find(device.id.db())).set(devices::tokens_until.eq(until.db()));
    on!(tx, |c| row.execute(c))?;
    Ok(())
}

/// The keys of removed devices whose last token has not expired.
pub(crate) fn removed_with_tokens(c: &mut Conn) -> Result<Vec<[u8; 32]>, StoreError> {
    let removed = devices::table
        .filter(devices::removed_at.is_not_null())
        .filter(devices::tokens_until.gt(now().nullable()))
        .select(devices::public_key);
    let keys: Vec<Vec<u8>> = on!(c, |c| removed.load(c))?;
    keys.into_iter().map(|key| bytes(key, c)).collect()
}

fn bytes(key: Vec<u8>, c: &Conn) -> Result<[u8; 32], StoreError> {
    key.try_into().map_err(|_| StoreError::bad_row(c.operation(), "a device's key has the wrong length"))
}

impl Row {
    fn device(self, c: &Conn) -> Result<Device, StoreError> {
        let bad = |what: &'static str| StoreError::bad_row(c.operation(), what);
        let role = Role::ALL.into_iter().find(|role| role.as_str() == self.role);
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.as_str() == self.kind);
        // Names of before they were in lists have no salt.
        let name = self.name.zip(self.name_salt);
        let name =
            name.and_then(|(name, salt)| Some(DeviceName { salt: Blob::new(salt).ok()?, name: Text::new(name).ok()? }));
        let machine = self.machine_id.map(|id| id.parse()).transpose();
        Ok(Device {
            id: self.id,
            user: self.user_id,
            public_key: bytes(self.public_key, c)?,
            box_key: bytes(self.box_key, c)?,
            role: role.ok_or_else(|| bad("a device has an unknown role"))?,
            kind: kind.ok_or_else(|| bad("a device has an unknown kind"))?,
            name,
            machine: machine.map_err(|error| StoreError::bad_row(c.operation(), error))?,
            created_at: self.created_at,
            last_seen_at: self.last_seen_at,
            is_removed: self.removed_at.is_some(),
            is_machine_deleted: self.machine_deleted_at.is_some(),
            tokens_until: self.tokens_until,
            notify: kinds(self.notify.as_deref()),
        })
    }
}
