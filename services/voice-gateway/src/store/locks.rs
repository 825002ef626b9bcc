//! Locks that starts hold until their transaction ends. SQLite has one writer at a time and needs none.

use diesel::prelude::*;
use diesel::sql_types::Text;
use ensemble_store_kit::{Conn, StoreError, on};

/// Serialises the starts of one user: both the decision whether they may start and the moment when they go live.
pub(crate) fn lock_user(tx: &mut Conn, user: &str) -> Result<(), StoreError> {
    lock(tx, &format!("voice:user:{user}"))
}

/// Serialises all starts. Needed only near the limit of all sessions.
pub(crate) fn lock_total(tx: &mut Conn) -> Result<(), StoreError> {
    lock(tx, "voice:total")
}

/// PostgreSQL's manual, section 13.3.5, "Advisory Locks".
fn lock(tx: &mut Conn, name: &str) -> Result<(), StoreError> {
    let locked = on!(
        tx,
        Pg | c
            | diesel::sql_query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
                .bind::<Text, _>(name)
                .execute(c),
        Sqlite | _c | Ok(0)
    );
    locked.map(drop)
}
