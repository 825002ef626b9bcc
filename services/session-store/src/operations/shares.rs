//! Private shares: check, create, update, remove, list. Each change holds the session's lock, so that a user's access ends
//! with the commit.

use ensemble_store_kit::cursor;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::shares::{Share, ShareLevel, SharePage};
use uuid::Uuid;

use super::{lock_session, publish_share, read_session};
use crate::SessionStore;
use crate::domain::access::{Access, Actor, CanShare, Refusal};
use crate::domain::share::{MAX_SHARES, check_recipient};
use crate::error::Error;
use crate::store;
use crate::store::sessions::SessionRow;
pub(crate) use crate::store::shares::{NewShare, ShareKey};

/// Shares a session, or replaces the recipient's share. True when the share is new.
pub(crate) async fn create(service: &SessionStore, caller: Actor, new: NewShare) -> Result<(Share, bool), Error> {
    // Checked before the recipient is looked up, so that only callers who may share learn which users exist. Checked again
    // under the lock, because the access may have changed meanwhile.
    let (request, asking) = (new.clone(), caller.clone());
    service
        .db
        .read("check whether a session may be shared", move |c| {
            let (session, access) = read_session(c, request.session, &asking)?;
            let existing = store::shares::level(c, request.session, request.recipient)?;
            check_create(&session, &access, existing, &request).map(drop)
        })
        .await?;
    service.peers.require_user(new.recipient).await?;
    service
        .db
        .write("share a session", move |tx| {
            let (session, access) = lock_session(tx, new.session, &caller)?;
            let existing = store::shares::level(tx, new.session, new.recipient)?;
            let can_share = check_create(&session, &access, existing, &new)?;
            if existing.is_none() && store::shares::count(tx, new.session)? >= MAX_SHARES {
                return Err(Error::TooManyShares);
            }
            store::shares::put(can_share, tx, &new)?;
            publish_share(tx, new.session, new.recipient)?;
            Ok((store::shares::load(tx, new.session, new.recipient)?, existing.is_none()))
        })
        .await
}

/// Changes the level, the key, or both.
pub(crate) async fn update(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    recipient: UserId,
    level: Option<ShareLevel>,
    key: Option<ShareKey>,
) -> Result<Share, Error> {
    service
        .db
        .write("update a share", move |tx| {
            let (_, access) = lock_session(tx, id, &caller)?;
            access.administer()?;
            let existing = store::shares::level(tx, id, recipient)?.ok_or(Refusal::NotFound)?;
            let can_share = access.share(Some(existing), level)?;
            store::shares::update(can_share, tx, id, recipient, level, key.as_ref())?;
            publish_share(tx, id, recipient)?;
            Ok(store::shares::load(tx, id, recipient)?)
        })
        .await
}

/// Ends a user's access. The recipient knew the session's key, so the owner is asked for a new one.
pub(crate) async fn remove(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    recipient: UserId,
) -> Result<(), Error> {
    service
        .db
        .write("remove a share", move |tx| {
            let (_, access) = lock_session(tx, id, &caller)?;
            let existing = store::shares::level(tx, id, recipient)?;
            let can_share = access.unshare(caller.user, recipient, existing)?;
            existing.ok_or(Refusal::NotFound)?;
            store::shares::remove(can_share, tx, id, recipient)?;
            store::sessions::require_rekey(tx, id)?;
            Ok(publish_share(tx, id, recipient)?)
        })
        .await
}

/// A page of a session's shares, newest first. Only the owner may read it.
pub(crate) async fn list(
    service: &SessionStore,
    id: SessionId,
    caller: Actor,
    limit: usize,
    cursor: Option<String>,
) -> Result<SharePage, Error> {
    let mut page = service
        .db
        .read("list shares", move |c| {
            read_session(c, id, &caller)?.1.own()?;
            let list = format!("shares {} {id}", caller.user);
            let after: Option<(i64, Uuid)> = cursor.as_deref().map(|text| cursor::decode(&list, text)).transpose()?;
            // One share more than the page holds shows whether there is a next page.
            let fetch = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
            let mut shares = store::shares::page(c, id, fetch, after)?;
            let has_more = shares.len() > limit;
            shares.truncate(limit);
            let last =
                shares.last().filter(|_| has_more).map(|share| (share.created_at.micros(), share.user_id.uuid()));
            Ok::<_, Error>(SharePage { shares, next_cursor: last.map(|key| cursor::encode(&list, &key)) })
        })
        .await?;
    let versions = service.peers.list_versions(page.shares.iter().map(|share| share.user_id)).await;
    for share in &mut page.shares {
        share.list_version = versions.get(&share.user_id).copied();
    }
    Ok(page)
}

fn check_create<'a>(
    session: &SessionRow,
    access: &'a Access,
    existing: Option<ShareLevel>,
    new: &NewShare,
) -> Result<CanShare<'a>, Error> {
    access.administer()?;
    check_recipient(session.owner_id, new.shared_by, new.recipient)?;
    Ok(access.share(existing, Some(new.level))?)
}
