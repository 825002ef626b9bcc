//! The outbox of deletions: a worker takes one, notifies the peers, and records which of them know.

use std::time::Duration;

use ensemble_store_kit::{Db, StoreError};

use crate::store::deletions::{self, Deletion};

/// Takes some deletions that are due. Other replicas do not take them for `hold`; a worker that dies with one delays it by
/// that time only.
pub(crate) async fn take(db: &Db, hold: Duration) -> Result<Vec<Deletion>, StoreError> {
    db.write("take deletions", move |tx| {
        let due = deletions::lock_due(tx)?;
        let next_try_at = tx.now()?.plus(hold);
        for deletion in &due {
            deletions::postpone(tx, deletion, next_try_at)?;
        }
        Ok(due)
    })
    .await
}

/// Records which peers know of a deletion, and removes it when both do.
pub(crate) async fn record(db: &Db, deletion: Deletion) -> Result<(), StoreError> {
    db.write("record a notified deletion", move |tx| {
        if deletion.identity_notified && deletion.orchestrator_notified {
            deletions::delete(tx, &deletion)
        } else {
            deletions::update(tx, &deletion)
        }
    })
    .await
}
