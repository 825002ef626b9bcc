//! A lock for each account in this process, for requests that would wait for each other's rows in the database. It holds what these
//! requests should know of each other.

use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::StoreError;
use ensemble_types::ids::UserId;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use super::empty_looks::EmptyLooks;

/// Accounts share this many locks. With more of them, two accounts would share one less often.
const LOCKS: usize = 64;
/// A little more than the database may take for one request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct PerAccountLock(Arc<[Mutex<EmptyLooks>; LOCKS]>);

impl Default for PerAccountLock {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Mutex::default())))
    }
}

impl PerAccountLock {
    /// Waits for the account's lock and holds it until the guard is dropped.
    pub(crate) async fn lock(&self, account: UserId) -> Result<MutexGuard<'_, EmptyLooks>, StoreError> {
        let index = usize::try_from(account.uuid().as_u128() % LOCKS as u128).ok();
        let unavailable = || StoreError::Unavailable {
            operation: "wait for the account's lock",
            reason: "earlier requests of the account take too long".to_owned(),
        };
        let lock = index.and_then(|index| self.0.get(index)).ok_or_else(unavailable)?;
        timeout(TIMEOUT, lock.lock()).await.map_err(|_| unavailable())
    }
}
