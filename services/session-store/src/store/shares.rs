//! Private shares.

use std::collections::{BTreeSet, HashMap};

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, on};
use ensemble_types::epochs::ContentEpoch;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::{Share, ShareLevel};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::schema::shares;
use crate::domain::access::CanShare;

#[derive(Queryable, Selectable)]
#[diesel(table_name = shares)]
struct ShareRow {
    session_id: SessionId,
    user_id: UserId,
    access_level: i16,
    encrypted_key: String,
    shared_by: UserId,
    created_at: Timestamp,
    updated_at: Timestamp,
    content_epoch: Option<i64>,
}

/// A share to create, or to put in place of an existing one.
#[derive(Clone, Debug)]
pub(crate) struct NewShare {
    pub(crate) session: SessionId,
    pub(crate) recipient: UserId,
    pub(crate) level: ShareLevel,
    pub(crate) encrypted_key: String,
    pub(crate) content_epoch: Option<ContentEpoch>,
    pub(crate) shared_by: UserId,
}

/// A key that is sealed to a recipient.
#[derive(Clone, Debug)]
pub(crate) struct ShareKey {
    pub(crate) sealed: String,
    pub(crate) content_epoch: Option<ContentEpoch>,
}

/// The access level that a user's share of a session gives.
pub(crate) fn level(c: &mut Conn, session: SessionId, user: UserId) -> Result<Option<ShareLevel>, StoreError> {
    let level: Option<i16> =
        on!(c, |c| shares::table.find((session.db(), user.db())).select(shares::access_level).first(c).optional())?;
    level.map(|level| level_from_number(c.operation(), level)).transpose()
}

/// The access levels of these users in these sessions.
pub(crate) fn levels(
    c: &mut Conn,
    users: &[(SessionId, UserId)],
) -> Result<HashMap<(SessionId, UserId), ShareLevel>, StoreError> {
    let (sessions, users): (Vec<DbId>, Vec<DbId>) = users.iter().map(|(s, u)| (s.db(), u.db())).unzip();
    if sessions.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(SessionId, UserId, i16)> = on!(c, |c| shares::table
        .filter(shares::session_id.eq_any(&sessions).and(shares::user_id.eq_any(&users)))
        .select((shares::session_id, shares::user_id, shares::access_level))
        .load(c))?;
    let operation = c.operation();
    rows.into_iter().map(|(s, u, level)| Ok(((s, u), level_from_number(operation, level)?))).collect()
}

/// The access levels of all users that a session is shared with.
pub(crate) fn levels_of_session(c: &mut Conn, session: SessionId) -> Result<HashMap<UserId, ShareLevel>, StoreError> {
    let rows: Vec<(UserId, i16)> = on!(c, |c| shares::table
        .filter(shares::session_id.eq(session.db()))
        .select((shares::user_id, shares::access_level))
        .load(c))?;
    let operation = c.operation();
    rows.into_iter().map(|(user, level)| Ok((user, level_from_number(operation, level)?))).collect()
}

/// The access levels of all users that these sessions are shared with.
pub(crate) fn levels_of_sessions(
    c: &mut Conn,
    sessions: &BTreeSet<SessionId>,
) -> Result<HashMap<SessionId, HashMap<UserId, ShareLevel>>, StoreError> {
    let ids: Vec<DbId> = sessions.iter().map(|session| session.db()).collect();
    let rows: Vec<(SessionId, UserId, i16)> = on!(c, |c| shares::table
        .filter(shares::session_id.eq_any(&ids))
        .select((shares::session_id, shares::user_id, shares::access_level))
        .load(c))?;
    let mut levels: HashMap<SessionId, HashMap<UserId, ShareLevel>> = HashMap::new();
    for (session, user, level) in rows {
        levels.entry(session).or_default().insert(user, level_from_number(c.operation(), level)?);
    }
    Ok(levels)
}

/// Creates a share, or replaces the recipient's existing one.
pub(crate) fn put(_: CanShare<'_>, tx: &mut Conn, new: &NewShare) -> Result<(), StoreError> {
    let columns = (
        shares::access_level.eq(level_number(new.level)),
        shares::encrypted_key.eq(&new.encrypted_key),
        shares::content_epoch.eq(new.content_epoch.map(i64::from)),
        shares::shared_by.eq(new.shared_by.db()),
        shares::updated_at.eq(now()),
    );
    let row = (
        shares::session_id.eq(new.session.db()),
        shares::user_id.eq(new.recipient.db()),
        shares::created_at.eq(now()),
        columns,
    );
    on!(tx, |c| diesel::insert_into(shares::table)
        .values(row)
        .on_conflict((shares::session_id, shares::user_id))
        .do_update()
        .set(columns)
        .execute(c))
    .map(drop)
}

/// Changes the level, the key, or both.
pub(crate) fn update(
    _: CanShare<'_>,
    tx: &mut Conn,
    session: SessionId,
    recipient: UserId,
    level: Option<ShareLevel>,
    key: Option<&ShareKey>,
) -> Result<(), StoreError> {
    on!(tx, |c| diesel::update(shares::table.find((session.db(), recipient.db())))
        .set((
            level.map(|level| shares::access_level.eq(level_number(level))),
            key.map(|key| (
                shares::encrypted_key.eq(&key.sealed),
                shares::content_epoch.eq(key.content_epoch.map(i64::from))
            )),
            shares::updated_at.eq(now())
        ))
        .execute(c))
    .map(drop)
}

pub(crate) fn remove(_: CanShare<'_>, tx: &mut Conn, session: SessionId, recipient: UserId) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(shares::table.find((session.db(), recipient.db()))).execute(c)).map(drop)
}

pub(crate) fn count(tx: &mut Conn, session: SessionId) -> Result<i64, StoreError> {
    on!(tx, |c| shares::table.filter(shares::session_id.eq(session.db())).count().get_result(c))
}

pub(crate) fn load(tx: &mut Conn, session: SessionId, user: UserId) -> Result<Share, StoreError> {
    let row: ShareRow =
        on!(tx, |c| shares::table.find((session.db(), user.db())).select(ShareRow::as_select()).first(c))?;
    share_from_row(tx.operation(), row)
}

/// Up to `limit` shares of a session, newest first, after the share with this creation time and user.
pub(crate) fn page(
    c: &mut Conn,
    session: SessionId,
    limit: i64,
    after: Option<(i64, Uuid)>,
) -> Result<Vec<Share>, StoreError> {
    let rows: Vec<ShareRow> = on!(c, |c| {
        let mut query = shares::table
            .filter(shares::session_id.eq(session.db()))
            .order((shares::created_at.desc(), shares::user_id.desc()))
            .limit(limit)
            .select(ShareRow::as_select())
            .into_boxed();
        if let Some((at, user)) = after {
            let (at, user) = (Timestamp::from_micros(at).db(), DbId(user));
            query = query.filter(shares::created_at.lt(at).or(shares::created_at.eq(at).and(shares::user_id.lt(user))));
        }
        query.load(c)
    })?;
    let operation = c.operation();
    rows.into_iter().map(|row| share_from_row(operation, row)).collect()
}

fn share_from_row(operation: &'static str, row: ShareRow) -> Result<Share, StoreError> {
    Ok(Share {
        session_id: row.session_id,
        user_id: row.user_id,
        access_level: level_from_number(operation, row.access_level)?,
        encrypted_key: row.encrypted_key,
        content_epoch: epoch_from_number(operation, row.content_epoch)?,
        list_version: None,
        shared_by: row.shared_by,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

/// A content epoch as a column holds it.
pub(crate) fn epoch_from_number(
    operation: &'static str,
    number: Option<i64>,
) -> Result<Option<ContentEpoch>, StoreError> {
    number.map(|epoch| epoch.try_into().map_err(|error| StoreError::bad_row(operation, error))).transpose()
}

pub(crate) fn level_from_number(operation: &'static str, number: i16) -> Result<ShareLevel, StoreError> {
    match number {
        1 => Ok(ShareLevel::View),
        2 => Ok(ShareLevel::Edit),
        3 => Ok(ShareLevel::Admin),
        other => Err(StoreError::bad_row(operation, format!("a share of level {other}"))),
    }
}

fn level_number(level: ShareLevel) -> i16 {
    match level {
        ShareLevel::View => 1,
        ShareLevel::Edit => 2,
        ShareLevel::Admin => 3,
    }
}
