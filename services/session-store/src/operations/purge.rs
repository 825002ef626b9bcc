//! Removes what deleted sessions and finished viewings leave behind, in small transactions that do not delay others.

use std::time::Duration;

use ensemble_store_kit::{Db, Subscription};

use super::quotas::Quotas;
use super::{deletions_topic, publish_deletion, pushes};
use crate::domain::public_link::VIEWING;
use crate::error::Error;
use crate::store;

/// The most messages that one transaction removes.
const BATCH: i64 = 200;
/// The most old sessions that one transaction deletes.
const OLD_SESSIONS: i64 = 50;

/// What one step of the purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purged {
    /// This many messages were removed; there may be more.
    Messages(usize),
    /// A session without messages was removed; there may be more.
    Session,
    /// No deleted session is left, or other replicas are working on those that are.
    Nothing,
}

/// Completes when this process has deleted sessions.
pub(crate) fn subscribe(db: &Db) -> Subscription {
    db.notifier().subscribe(deletions_topic())
}

/// Removes a batch of one deleted session's messages, or the session when it has none left.
pub(crate) async fn step(db: &Db) -> Result<Purged, Error> {
    db.write("purge deleted sessions", |tx| {
        let Some(session) = store::purge::next_deleted(tx)? else { return Ok(Purged::Nothing) };
        tx.commit_without_waiting()?;
        let removed = store::purge::remove_messages(tx, session, BATCH)?;
        if removed > 0 {
            return Ok(Purged::Messages(removed));
        }
        store::purge::remove_session(tx, session)?;
        Ok(Purged::Session)
    })
    .await
}

/// Deletes some sessions that are over, and have not changed for longer than they are kept. Returns how many.
pub(crate) async fn expire(db: &Db, quotas: &Quotas, kept: Duration) -> Result<usize, Error> {
    let owners = db.write("delete old sessions", move |tx| {
        let cutoff = tx.now()?.minus(kept);
        let mut owners = Vec::new();
        for id in store::purge::over_since(tx, cutoff, OLD_SESSIONS)? {
            let Some(session) = store::sessions::lock(tx, id)? else { continue };
            store::purge::mark_expired(tx, id)?;
            publish_deletion(tx, &session)?;
            pushes::forget(tx, &session)?;
            owners.push(session.owner_id);
        }
        Ok::<_, Error>(owners)
    });
    let owners = owners.await?;
    for owner in &owners {
        quotas.sessions.forget(*owner);
        quotas.message_bytes.forget(*owner);
    }
    Ok(owners.len())
}

/// Removes viewings that are over.
pub(crate) async fn remove_old_viewings(db: &Db) -> Result<(), Error> {
    db.write("remove old viewings", |tx| {
        let cutoff = tx.now()?.minus(VIEWING);
        Ok(store::public_links::remove_old_viewings(tx, cutoff)?)
    })
    .await
}
