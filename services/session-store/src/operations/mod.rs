//! The use cases, one file for each noun. An operation reads what it needs, checks the permission, applies the rules and
//! stores the result, in one transaction.

pub(crate) mod append;
pub(crate) mod hints;
mod latest_page_cache;
pub(crate) mod live;
mod look_table;
pub(crate) mod looks;
pub(crate) mod messages;
pub(crate) mod public_links;
pub(crate) mod purge;
pub(crate) mod pushes;
pub(crate) mod quotas;
pub(crate) mod session_list;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod streams;
pub(crate) mod sweep;

use ensemble_store_kit::{Conn, StoreError, Topic};
use ensemble_types::hints::HintKind;
use ensemble_types::ids::{SessionId, UserId};

pub(crate) use self::latest_page_cache::LatestPageCaches;
use crate::domain::access::{Access, Actor, Refusal};
use crate::error::Error;
use crate::store;
use crate::store::sessions::SessionRow;

const SESSION_TOPICS: &str = "session";

/// Notified after each change that the session's streams must look at.
fn session_topic(session: SessionId) -> Topic {
    Topic::new(SESSION_TOPICS, session)
}

/// Notified when sessions were deleted, so that the purge starts at once.
fn deletions_topic() -> Topic {
    Topic::new("purge", "sessions")
}

/// Locks a session until the transaction ends, and reads the caller's access to it. The access stays true until then.
fn lock_session(tx: &mut Conn, id: SessionId, caller: &Actor) -> Result<(SessionRow, Access), Error> {
    let session = store::sessions::lock(tx, id)?.ok_or(Refusal::NotFound)?;
    let level = store::shares::level(tx, id, caller.user)?;
    let access = Access::of(session.ownership(), caller, level)?;
    Ok((session, access))
}

/// Reads a session and the caller's access without a lock. Good enough for reads, and for checks before a slow call.
fn read_session(c: &mut Conn, id: SessionId, caller: &Actor) -> Result<(SessionRow, Access), Error> {
    let session = store::sessions::find(c, id)?.ok_or(Refusal::NotFound)?;
    let level = store::shares::level(c, id, caller.user)?;
    let access = Access::of(session.ownership(), caller, level)?;
    Ok((session, access))
}

/// Makes the streams of a session look at it again after the commit.
fn publish_change(tx: &mut Conn, session: SessionId) -> Result<(), StoreError> {
    store::sessions::bump_revision(tx, session)?;
    tx.notify(session_topic(session));
    Ok(())
}

/// The same after a change of a user's share, for which the user gets a separate hint.
fn publish_share(tx: &mut Conn, session: SessionId, recipient: UserId) -> Result<(), StoreError> {
    publish_change(tx, session)?;
    let revision = revision(tx, session)?;
    tx.notify(hints::hint_topic(recipient, None, HintKind::Share, session, revision));
    Ok(())
}

/// The same when a session was deleted. All who had access get a hint now, because it cannot be looked up later.
fn publish_deletion(tx: &mut Conn, session: &SessionRow) -> Result<(), StoreError> {
    let id = session.id;
    publish_change(tx, id)?;
    let revision = revision(tx, id)?;
    tx.notify(hints::hint_topic(session.owner_id, session.ownership().host, HintKind::Session, id, revision));
    for guest in store::shares::levels_of_session(tx, id)?.into_keys() {
        tx.notify(hints::hint_topic(guest, None, HintKind::Session, id, revision));
    }
    Ok(())
}

/// Rises with every change of a session.
fn revision(tx: &mut Conn, session: SessionId) -> Result<i64, StoreError> {
    Ok(store::sessions::revisions(tx, &[session])?.first().map_or(0, |(_, (seq, changes))| seq + changes))
}
