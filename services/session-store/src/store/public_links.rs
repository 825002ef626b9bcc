//! Public links, and the viewings that had an `Idempotency-Key`.

use diesel::prelude::*;
use ensemble_store_kit::types::{IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cached, on};
use ensemble_types::ids::SessionId;
use ensemble_types::links::LinkState;
use ensemble_types::time::Timestamp;

use super::schema::{links, sessions, viewings};
use crate::domain::access::{CanAdminister, CanOwn};
use crate::domain::public_link::{LinkTerms, PublicLink, TokenHash, ViewKey};

#[derive(Queryable, Selectable)]
#[diesel(table_name = links)]
struct LinkRow {
    session_id: SessionId,
    view_key: Vec<u8>,
    expires_at: Option<Timestamp>,
    max_uses: Option<i64>,
    uses: i64,
    encrypted_key: Option<String>,
}

/// The link with this token, and the database's time, unless the link has expired or its session is deleted.
pub(crate) fn find(c: &mut Conn, token: TokenHash) -> Result<Option<(PublicLink, Timestamp)>, StoreError> {
    let found: Option<(LinkRow, Timestamp)> = on!(c, |c| links::table
        .inner_join(sessions::table.on(sessions::id.eq(links::session_id)))
        .filter(links::token_hash.eq(token.0.as_slice()).and(sessions::deleted_at.is_null()))
        .select((LinkRow::as_select(), now()))
        .first(c)
        .optional())?;
    let Some((row, at)) = found.filter(|(row, at)| row.expires_at.is_none_or(|end| *at < end)) else {
        return Ok(None);
    };
    let wrong_length = |_| StoreError::bad_row(c.operation(), "a view key of the wrong length");
    let link = PublicLink {
        session: row.session_id,
        view_key: ViewKey(row.view_key.as_slice().try_into().map_err(wrong_length)?),
        expires_at: row.expires_at,
        max_uses: row.max_uses,
        uses: row.uses,
        encrypted_key: row.encrypted_key,
    };
    Ok(Some((link, at)))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = links)]
struct StateRow {
    expires_at: Option<Timestamp>,
    max_uses: Option<i64>,
    uses: i64,
    created_at: Timestamp,
    key_epoch: Option<i64>,
}

/// The session's link, unless it has expired.
pub(crate) fn state(_: CanAdminister<'_>, c: &mut Conn, session: SessionId) -> Result<Option<LinkState>, StoreError> {
    let found: Option<StateRow> = on!(c, |c| links::table
        .find(session.db())
        .filter(links::expires_at.is_null().or(links::expires_at.gt(now().nullable())))
        .select(StateRow::as_select())
        .first(c)
        .optional())?;
    Ok(found.map(|StateRow { expires_at, max_uses, uses, created_at, key_epoch }| LinkState {
        expires_at,
        max_uses,
        uses,
        created_at,
        key_epoch,
    }))
}

/// Inserts a session's only link; remove an existing one first.
pub(crate) fn insert(
    _: CanOwn<'_>,
    tx: &mut Conn,
    session: SessionId,
    token: TokenHash,
    terms: &LinkTerms,
    created_at: Timestamp,
    key_epoch: i64,
) -> Result<(), StoreError> {
    let row = (
        links::session_id.eq(session.db()),
        links::token_hash.eq(token.0.as_slice()),
        links::view_key.eq(ViewKey::generate().0.to_vec()),
        links::expires_at.eq(terms.expires_at.db()),
        links::max_uses.eq(terms.max_uses),
        links::uses.eq(0),
        links::encrypted_key.eq(terms.encrypted_key.as_deref()),
        links::created_at.eq(created_at.db()),
        links::key_epoch.eq(key_epoch),
    );
    on!(tx, |c| diesel::insert_into(links::table).values(row).execute(c)).map(drop)
}

/// Removes a session's link and its viewings. False when there was none.
pub(crate) fn remove(_: CanOwn<'_>, tx: &mut Conn, session: SessionId) -> Result<bool, StoreError> {
    on!(tx, |c| diesel::delete(viewings::table.filter(viewings::session_id.eq(session.db()))).execute(c))?;
    Ok(on!(tx, |c| diesel::delete(links::table.find(session.db())).execute(c))? > 0)
}

/// Counts one use, if the link has one left, and gives the new count. The row stays locked until the commit, so the count is
/// exact and a removal waits.
pub(crate) fn count_use(tx: &mut Conn, token: TokenHash) -> Result<Option<i64>, StoreError> {
    on!(tx, |c| cached(
        diesel::update(links::table)
            .filter(links::token_hash.eq(token.0.as_slice()))
            .filter(links::expires_at.is_null().or(links::expires_at.gt(now().nullable())))
            .filter(links::max_uses.is_null().or(links::max_uses.gt(links::uses.nullable())))
            .set(links::uses.eq(links::uses + 1))
            .returning(links::uses)
    )
    .get_result(c)
    .optional())
}

/// When the viewing with this key began.
pub(crate) fn viewing(
    c: &mut Conn,
    session: SessionId,
    token: TokenHash,
    key: &str,
) -> Result<Option<Timestamp>, StoreError> {
    on!(c, |c| viewings::table
        .find((session.db(), token.0.as_slice(), key))
        .select(viewings::viewed_at)
        .first(c)
        .optional())
}

/// Records a viewing. False when there is one with this key; a concurrent one with the same key waits for this commit.
pub(crate) fn insert_viewing(
    tx: &mut Conn,
    session: SessionId,
    token: TokenHash,
    key: &str,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let row = (
        viewings::session_id.eq(session.db()),
        viewings::token_hash.eq(token.0.as_slice()),
        viewings::key.eq(key),
        viewings::viewed_at.eq(at.db()),
    );
    let inserted = on!(tx, |c| diesel::insert_into(viewings::table).values(row).on_conflict_do_nothing().execute(c))?;
    Ok(inserted == 1)
}

/// Starts a viewing again under a key whose previous viewing is over.
pub(crate) fn restart_viewing(
    tx: &mut Conn,
    session: SessionId,
    token: TokenHash,
    key: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let viewing = viewings::table.find((session.db(), token.0.as_slice(), key));
    on!(tx, |c| diesel::update(viewing).set(viewings::viewed_at.eq(at.db())).execute(c)).map(drop)
}

/// Removes viewings that began before `cutoff`.
pub(crate) fn remove_old_viewings(tx: &mut Conn, cutoff: Timestamp) -> Result<(), StoreError> {
    on!(tx, |c| diesel::delete(viewings::table.filter(viewings::viewed_at.lt(cutoff.db()))).execute(c)).map(drop)
}
