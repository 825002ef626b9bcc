//! Deleting what has expired. Several replicas may do it at once.

use ensemble_store_kit::{Db, StoreError};

use crate::store::{challenges, revocations, tokens};

/// Rows that one transaction deletes from a table.
const BATCH: i64 = 500;

/// Deletes expired challenges, tokens and revocations.
pub(crate) async fn delete_expired(db: &Db) -> Result<(), StoreError> {
    while db.write("delete expired challenges", |tx| challenges::delete_expired(tx, BATCH)).await? > 0 {}
    let delete = async || {
        db.write("delete expired tokens", |tx| {
            Ok::<_, StoreError>(tokens::delete_expired(tx, BATCH)? + revocations::delete_expired(tx, BATCH)?)
        })
        .await
    };
    while delete().await? > 0 {}
    Ok(())
}
