//! Loops that run as long as the service does.

use std::sync::Arc;
use std::time::Duration;

use ensemble_chassis::Drain;
use ensemble_store_kit::StoreError;

use crate::OpenChallenges;
use crate::keys::KeyRing;
use crate::store::Store;

/// How many rows one transaction removes.
const BATCH: i64 = 500;

/// What the loops need. Several replicas may run them at once.
#[derive(Clone)]
pub(crate) struct Loops {
    pub(crate) store: Store,
    pub(crate) ring: Arc<KeyRing>,
    pub(crate) challenges: Arc<OpenChallenges>,
    pub(crate) ring_refresh: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) drain: Drain,
}

impl Loops {
    /// Keeps the picture of the keys fresh, and makes and drops keys when it is time.
    pub(crate) async fn turn_keys(self) {
        let mut news = self.store.keys_change();
        loop {
            tokio::select! {
                () = news.changed() => {}
                () = tokio::time::sleep(self.ring_refresh) => {}
                // Requests in flight still verify with the last picture.
                () = self.drain.closing() => return,
            }
            if let Err(error) = self.ring.turn().await {
                tracing::warn!(%error, "The keys could not be brought up to date");
            }
        }
    }

    /// Removes what has expired, and counts the challenges that are out.
    pub(crate) async fn sweep(self) {
        loop {
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "Expired challenges and tokens could not be removed");
            }
            tokio::select! {
                () = tokio::time::sleep(self.sweep_every) => {}
                () = self.drain.closing() => return,
            }
        }
    }

    async fn sweep_once(&self) -> Result<(), StoreError> {
        while self.store.forget_challenges(BATCH).await? > 0 {}
        while self.store.forget_tokens(BATCH).await? > 0 {}
        self.challenges.counted(self.store.open_challenges().await?);
        Ok(())
    }
}
