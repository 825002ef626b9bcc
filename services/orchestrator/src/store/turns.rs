//! One after the other in this process: requests of an account that would stand in each other's way in the database.

use std::sync::Arc;
use std::time::Duration;

use ensemble_store_kit::StoreError;
use ensemble_types::ids::UserId;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

/// Accounts share these; more would only make two of them meet less often.
const LANES: usize = 64;
/// As long as the database may take for one of them, and a little more.
const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Turns(Arc<[Mutex<()>; LANES]>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Mutex::default())))
    }
}

impl Turns {
    /// Waits for the account's turn, which lasts until what is returned is dropped.
    pub(super) async fn of(&self, account: UserId) -> Result<MutexGuard<'_, ()>, StoreError> {
        let lanes = LANES as u128;
        let lane = usize::try_from(account.uuid().as_u128() % lanes).ok().and_then(|lane| self.0.get(lane));
        let away =
            || StoreError::Unavailable { operation: "wait for a turn", reason: "others take too long".to_owned() };
        timeout(TIMEOUT, lane.ok_or_else(away)?.lock()).await.map_err(|_| away())
    }
}
