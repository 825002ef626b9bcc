//! The use cases, one file for each noun. An operation reads what it needs, checks the permission, applies the rules and
//! stores the result, in one transaction.

pub(crate) mod append;
mod latest_page_cache;
pub(crate) mod live;
pub(crate) mod messages;
pub(crate) mod public_links;
pub(crate) mod purge;
pub(crate) mod quotas;
pub(crate) mod sessions;
pub(crate) mod shares;
pub(crate) mod streams;
pub(crate) mod sweep;

use ensemble_store_kit::{Conn, StoreError, Topic};
use ensemble_types::ids::SessionId;

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
