//! Keeps the key ring up to date, and rotates the keys when it is time.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::Db;

use crate::keys::KeyRing;
use crate::operations::signing_keys;
use crate::store::revocations;

pub(crate) struct KeyRefresh {
    pub(crate) db: Db,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) every: Duration,
    pub(crate) drain: Drain,
}

impl KeyRefresh {
    pub(crate) async fn run(self) {
        let mut changes = self.db.notifier().subscribe(revocations::topic());
        loop {
            tokio::select! {
                () = changes.changed() => {}
                () = tokio::time::sleep(self.every) => {}
                // Requests in flight are verified with the keys that were loaded last.
                () = self.drain.closing() => return,
            }
            if let Err(error) = signing_keys::refresh(&self.db, &self.ring).await {
                tracing::warn!(%error, "The signing keys could not be refreshed");
            }
        }
    }
}
