//! The lock that orders everything about one session: its row. Appends, changes, shares, links and deletion take it first,
//! so whatever they read after it is true until they commit.

use diesel::prelude::*;
use ensemble_store_kit::types::IntoDb;
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::ShareLevel;
use ensemble_types::time::Timestamp;

use super::schema::{sessions, shares};
use super::topic;
use crate::domain::access::{Access, Refusal};
use crate::error::Error;

/// What a session's row says that decisions are made from.
#[derive(Clone, Copy, Debug, Queryable, Selectable)]
#[diesel(table_name = sessions)]
pub(super) struct Spine {
    pub(super) id: SessionId,
    pub(super) owner_id: UserId,
    pub(super) metadata_version: i64,
    pub(super) agent_state_version: i64,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) key_epoch: i64,
}

/// Locks a session for a caller until the transaction ends.
pub(super) fn session(tx: &mut Conn, id: SessionId, caller: UserId) -> Result<(Spine, Access), Error> {
    let query = sessions::table.find(id.db()).filter(sessions::deleted_at.is_null());
    let spine: Option<Spine> = on!(
        tx,
        Pg | c | query.select(Spine::as_select()).for_no_key_update().first(c).optional(),
        Sqlite | c | query.select(Spine::as_select()).first(c).optional()
    )?;
    let spine = spine.ok_or(Refusal::NotFound)?;
    let access = Access::of(spine.owner_id, caller, level_of(tx, id, caller)?)?;
    Ok((spine, access))
}

/// Reads a caller's standing without a lock: good for deciding what to ask next, not for writing.
pub(super) fn peek(c: &mut Conn, id: SessionId, caller: UserId) -> Result<(Spine, Access), Error> {
    let spine: Option<Spine> = on!(c, |c| sessions::table
        .find(id.db())
        .filter(sessions::deleted_at.is_null())
        .select(Spine::as_select())
        .first(c)
        .optional())?;
    let spine = spine.ok_or(Refusal::NotFound)?;
    let access = Access::of(spine.owner_id, caller, level_of(c, id, caller)?)?;
    Ok((spine, access))
}

pub(super) fn level_of(c: &mut Conn, session: SessionId, user: UserId) -> Result<Option<ShareLevel>, StoreError> {
    let level: Option<i16> =
        on!(c, |c| shares::table.find((session.db(), user.db())).select(shares::access_level).first(c).optional())?;
    level.map(|level| level_from(c.operation(), level)).transpose()
}

/// Tells the streams of a session to look again; `rekey` when somebody lost access.
pub(super) fn touch(tx: &mut Conn, session: SessionId, rekey: bool) -> Result<(), StoreError> {
    let row = sessions::table.find(session.db());
    let revision = sessions::revision.eq(sessions::revision + 1);
    if rekey {
        on!(tx, |c| cached(diesel::update(row).set((revision, sessions::rekey_needed.eq(true)))).execute(c))?;
    } else {
        on!(tx, |c| cached(diesel::update(row).set(revision)).execute(c))?;
    }
    tx.notify(topic(session));
    Ok(())
}

pub(super) fn level_from(operation: &'static str, number: i16) -> Result<ShareLevel, StoreError> {
    match number {
        1 => Ok(ShareLevel::View),
        2 => Ok(ShareLevel::Edit),
        3 => Ok(ShareLevel::Admin),
        other => Err(StoreError::bad_row(operation, format!("a share of level {other}"))),
    }
}

pub(super) fn level_number(level: ShareLevel) -> i16 {
    match level {
        ShareLevel::View => 1,
        ShareLevel::Edit => 2,
        ShareLevel::Admin => 3,
    }
}
