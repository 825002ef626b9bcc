//! The table `device_lists`.

use diesel::dsl::max;
use diesel::prelude::*;
use ensemble_protocol::lists::{List, decode, encode};
use ensemble_store_kit::types::{DbId, IntoDb};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::devices::SignedList;
use ensemble_types::ids::UserId;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;

use super::schema::device_lists;

#[derive(Queryable, Selectable)]
#[diesel(table_name = device_lists)]
struct Row {
    version: i32,
    body: String,
    signer: Vec<u8>,
    signature: Vec<u8>,
}

/// The newest list of an account.
pub(crate) fn newest(c: &mut Conn, user: UserId) -> Result<Option<SignedList>, StoreError> {
    let query = device_lists::table.filter(device_lists::user_id.eq(user.db())).order(device_lists::version.desc());
    let row: Option<Row> = on!(c, |c| query.select(Row::as_select()).first(c).optional())?;
    row.map(|row| row.list(c)).transpose()
}

/// The versions of the newest lists of these users.
pub(crate) fn newest_versions(c: &mut Conn, users: &[UserId]) -> Result<Vec<(UserId, u32)>, StoreError> {
    let users: Vec<DbId> = users.iter().map(|user| user.db()).collect();
    let rows: Vec<(UserId, Option<i32>)> = on!(c, |c| device_lists::table
        .filter(device_lists::user_id.eq_any(users))
        .group_by(device_lists::user_id)
        .select((device_lists::user_id, max(device_lists::version)))
        .load(c))?;
    Ok(rows.into_iter().filter_map(|(user, version)| Some((user, u32::try_from(version?).ok()?))).collect())
}

/// At most `limit` lists after that version, the oldest first, with their versions.
pub(crate) fn after(
    c: &mut Conn,
    user: UserId,
    version: i32,
    limit: i64,
) -> Result<Vec<(i32, SignedList)>, StoreError> {
    let query = device_lists::table
        .filter(device_lists::user_id.eq(user.db()))
        .filter(device_lists::version.gt(version))
        .order(device_lists::version)
        .limit(limit);
    let rows: Vec<Row> = on!(c, |c| query.select(Row::as_select()).load(c))?;
    rows.into_iter().map(|row| Ok((row.version, row.list(c)?))).collect()
}

/// How many lists of an account were taken since then.
pub(crate) fn count_since(tx: &mut Conn, user: UserId, since: Timestamp) -> Result<i64, StoreError> {
    let recent =
        device_lists::table.filter(device_lists::user_id.eq(user.db())).filter(device_lists::taken_at.gt(since.db()));
    on!(tx, |c| recent.count().get_result(c))
}

pub(crate) fn insert(tx: &mut Conn, user: UserId, list: &List, taken_at: Timestamp) -> Result<(), StoreError> {
    let bad = |what: &'static str| StoreError::bad_row("insert a device list", what);
    let signed = list.signed();
    let signer: [u8; 32] = decode(&signed.signer).ok_or_else(|| bad("a signer is no key"))?;
    let signature: [u8; 64] = decode(&signed.signature).ok_or_else(|| bad("a signature is none"))?;
    let row = (
        device_lists::user_id.eq(user.db()),
        device_lists::version.eq(i32::try_from(list.version()).map_err(|_| bad("a version is too high"))?),
        device_lists::body.eq(&*signed.body),
        device_lists::signer.eq(signer.as_slice()),
        device_lists::signature.eq(signature.as_slice()),
        device_lists::digest.eq(list.digest().as_slice()),
        device_lists::taken_at.eq(taken_at.db()),
    );
    on!(tx, |c| diesel::insert_into(device_lists::table).values(row).execute(c))?;
    Ok(())
}

impl Row {
    fn list(self, c: &Conn) -> Result<SignedList, StoreError> {
        let bad = |error| StoreError::bad_row(c.operation(), error);
        Ok(SignedList {
            body: Text::new(self.body).map_err(bad)?,
            signer: Blob::new(encode(&self.signer)).map_err(bad)?,
            signature: Blob::new(encode(&self.signature)).map_err(bad)?,
        })
    }
}
