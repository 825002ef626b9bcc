//! Deleting what has expired. Several replicas may do it at once.

use ensemble_store_kit::{Db, StoreError};

use crate::store::{challenges, device_links, invites, pushes, revocations, tokens};

/// Rows that one transaction deletes from a table.
const BATCH: i64 = 500;

/// Deletes expired challenges, tokens, revocations, links of devices and invitations.
pub(crate) async fn delete_expired(db: &Db) -> Result<(), StoreError> {
    while db.write("delete expired challenges", |tx| challenges::delete_expired(tx, BATCH)).await? > 0 {}
    let delete = async || {
        db.write("delete expired tokens", |tx| {
            let expired = tokens::delete_expired(tx, BATCH)? + revocations::delete_expired(tx, BATCH)?;
            let over = device_links::delete_over(tx, BATCH)? + invites::delete_over(tx, BATCH)?;
            Ok::<_, StoreError>(expired + over + pushes::delete_over(tx, BATCH)?)
        })
        .await
    };
    while delete().await? > 0 {}
    Ok(())
}
