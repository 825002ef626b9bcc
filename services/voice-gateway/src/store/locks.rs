//! Locks that starts hold until their transaction ends. SQLite has one writer at a time and needs none.

use ensemble_store_kit::{Conn, StoreError};

/// Serialises the starts of one user: both the decision whether they may start and the moment when they go live.
pub(crate) fn lock_user(tx: &mut Conn, user: &str) -> Result<(), StoreError> {
    tx.lock(&format!("voice:user:{user}"))
}

/// Serialises all starts. Needed only near the limit of all sessions.
pub(crate) fn lock_total(tx: &mut Conn) -> Result<(), StoreError> {
    tx.lock("voice:total")
}
