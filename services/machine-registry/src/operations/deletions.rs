//! The outbox of deletions: the request that deletes a machine notifies the peers and records which of them know. When not
//! both do, a worker takes the deletion and does it again.

use std::time::Duration;

use ensemble_store_kit::{Db, StoreError};

use crate::clients::DeletionPeers;
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

/// Notifies the peers that do not know yet, both at once.
pub(crate) async fn notify(peers: &DeletionPeers, mut deletion: Deletion) -> Deletion {
    let Deletion { owner_id, machine_id, deleted_at, .. } = &deletion;
    let identity =
        async { deletion.identity_notified || peers.revoke_tokens(*owner_id, machine_id, *deleted_at).await };
    let orchestrator =
        async { deletion.orchestrator_notified || peers.end_leases(*owner_id, machine_id, *deleted_at).await };
    (deletion.identity_notified, deletion.orchestrator_notified) = futures_util::join!(identity, orchestrator);
    if deletion.identity_notified && deletion.orchestrator_notified {
        tracing::info!(machine.id = %deletion.machine_id, "A deleted machine's tokens and leases have ended");
    }
    deletion
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
