//! Private shares: made, changed and removed under the session's lock, so that access ends with the commit.

use diesel::prelude::*;
use ensemble_store_kit::types::{DbId, IntoDb, now};
use ensemble_store_kit::{Conn, StoreError, cursor, on};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::{Share, ShareLevel, SharePage};
use ensemble_types::time::Timestamp;
use uuid::Uuid;

use super::schema::shares;
use super::{Store, list_name, lock};
use crate::domain::Invalid;
use crate::domain::access::{Access, CanShare, Refusal};
use crate::error::Error;

/// A session's own limit.
const MAX_SHARES: i64 = 100;

#[derive(Queryable, Selectable)]
#[diesel(table_name = shares)]
struct Row {
    session_id: SessionId,
    user_id: UserId,
    access_level: i16,
    encrypted_key: String,
    shared_by: UserId,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Store {
    /// Whether the caller could give this user this level, before the user is looked up.
    pub(crate) async fn may_share(
        &self,
        session: SessionId,
        caller: UserId,
        target: UserId,
        level: ShareLevel,
    ) -> Result<(), Error> {
        self.db
            .read("look whether it may be shared", move |c| {
                let (spine, access) = lock::peek(c, session, caller)?;
                let existing = lock::level_of(c, session, target)?;
                may_share(&access, existing, level, spine.owner_id, caller, target).map(|_| ())
            })
            .await
    }

    /// Shares a session, or replaces the share that is there. True when it is new.
    pub(crate) async fn share(
        &self,
        session: SessionId,
        caller: UserId,
        target: UserId,
        level: ShareLevel,
        encrypted_key: String,
    ) -> Result<(Share, bool), Error> {
        self.db
            .write("share a session", move |tx| {
                let (spine, access) = lock::session(tx, session, caller)?;
                let existing = lock::level_of(tx, session, target)?;
                let proof = may_share(&access, existing, level, spine.owner_id, caller, target)?;
                if existing.is_none() && count(tx, session)? >= MAX_SHARES {
                    return Err(Error::TooManyShares);
                }
                put(proof, tx, session, caller, target, level, &encrypted_key)?;
                lock::touch(tx, session, false)?;
                Ok((one(tx, session, target)?, existing.is_none()))
            })
            .await
    }

    pub(crate) async fn update_share(
        &self,
        session: SessionId,
        caller: UserId,
        target: UserId,
        level: Option<ShareLevel>,
        encrypted_key: Option<String>,
    ) -> Result<Share, Error> {
        self.db
            .write("update a share", move |tx| {
                let (_, access) = lock::session(tx, session, caller)?;
                access.administer()?;
                let existing = lock::level_of(tx, session, target)?.ok_or(Refusal::NotFound)?;
                access.share(Some(existing), level)?;
                let row = shares::table.find((session.db(), target.db()));
                on!(tx, |c| diesel::update(row)
                    .set((
                        level.map(|level| shares::access_level.eq(lock::level_number(level))),
                        encrypted_key.as_ref().map(|key| shares::encrypted_key.eq(key)),
                        shares::updated_at.eq(now())
                    ))
                    .execute(c))?;
                lock::touch(tx, session, false)?;
                one(tx, session, target)
            })
            .await
    }

    /// Ends a user's access; the owner is asked to change the key.
    pub(crate) async fn unshare(&self, session: SessionId, caller: UserId, target: UserId) -> Result<(), Error> {
        self.db
            .write("remove a share", move |tx| {
                let (_, access) = lock::session(tx, session, caller)?;
                let existing = lock::level_of(tx, session, target)?;
                access.unshare(caller, target, existing)?;
                existing.ok_or(Refusal::NotFound)?;
                on!(tx, |c| diesel::delete(shares::table.find((session.db(), target.db()))).execute(c))?;
                Ok(lock::touch(tx, session, true)?)
            })
            .await
    }

    /// A page of shares, newest first; the owner's only.
    pub(crate) async fn shares(
        &self,
        session: SessionId,
        caller: UserId,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<SharePage, Error> {
        self.db
            .read("list shares", move |c| {
                lock::peek(c, session, caller)?.1.own()?;
                let list = format!("{} {session}", list_name("shares", caller));
                let from: Option<(i64, Uuid)> =
                    cursor.as_deref().map(|text| cursor::decode(&list, text)).transpose()?;
                page(c, session, limit, &list, from)
            })
            .await
    }
}

fn may_share<'a>(
    access: &'a Access,
    existing: Option<ShareLevel>,
    level: ShareLevel,
    owner: UserId,
    caller: UserId,
    target: UserId,
) -> Result<CanShare<'a>, Error> {
    access.administer()?;
    if target == owner {
        return Err(Invalid::new("/userId", "is the session's owner, who needs no share").into());
    }
    if target == caller {
        return Err(Invalid::new("/userId", "is yourself").into());
    }
    Ok(access.share(existing, Some(level))?)
}

fn put(
    _: CanShare<'_>,
    tx: &mut Conn,
    session: SessionId,
    caller: UserId,
    target: UserId,
    level: ShareLevel,
    encrypted_key: &str,
) -> Result<(), StoreError> {
    let change = (
        shares::access_level.eq(lock::level_number(level)),
        shares::encrypted_key.eq(encrypted_key),
        shares::shared_by.eq(caller.db()),
        shares::updated_at.eq(now()),
    );
    let replaced = on!(tx, |c| diesel::update(shares::table.find((session.db(), target.db()))).set(change).execute(c))?;
    if replaced == 0 {
        let row = (
            shares::session_id.eq(session.db()),
            shares::user_id.eq(target.db()),
            shares::created_at.eq(now()),
            change,
        );
        on!(tx, |c| diesel::insert_into(shares::table).values(row).execute(c))?;
    }
    Ok(())
}

fn count(tx: &mut Conn, session: SessionId) -> Result<i64, StoreError> {
    on!(tx, |c| shares::table.filter(shares::session_id.eq(session.db())).count().get_result(c))
}

fn one(tx: &mut Conn, session: SessionId, user: UserId) -> Result<Share, Error> {
    let row: Row = on!(tx, |c| shares::table.find((session.db(), user.db())).select(Row::as_select()).first(c))?;
    Ok(share(tx.operation(), row)?)
}

fn page(
    c: &mut Conn,
    session: SessionId,
    limit: usize,
    list: &str,
    from: Option<(i64, Uuid)>,
) -> Result<SharePage, Error> {
    let fetch = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
    let mut rows: Vec<Row> = on!(c, |c| {
        let mut query = shares::table
            .filter(shares::session_id.eq(session.db()))
            .order((shares::created_at.desc(), shares::user_id.desc()))
            .limit(fetch)
            .select(Row::as_select())
            .into_boxed();
        if let Some((at, user)) = from {
            let (at, user) = (Timestamp::from_micros(at).db(), DbId(user));
            query = query.filter(shares::created_at.lt(at).or(shares::created_at.eq(at).and(shares::user_id.lt(user))));
        }
        query.load(c)
    })?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more).map(|row| (row.created_at.micros(), row.user_id.uuid()));
    let operation = c.operation();
    let shares = rows.into_iter().map(|row| share(operation, row)).collect::<Result<_, _>>()?;
    Ok(SharePage { shares, next_cursor: last.map(|key| cursor::encode(list, &key)) })
}

fn share(operation: &'static str, row: Row) -> Result<Share, StoreError> {
    Ok(Share {
        session_id: row.session_id,
        user_id: row.user_id,
        access_level: lock::level_from(operation, row.access_level)?,
        encrypted_key: row.encrypted_key,
        shared_by: row.shared_by,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
