//! `Idempotency-Key`: the second request with a key gets the resource that the first one made.
//!
//! The key is written in the transaction that makes the resource, under a unique constraint. So only successes are kept,
//! and a second request waits for the first one's commit or rollback. The resource's id and the body's digest are kept
//! for [`KEPT`].

use std::time::Duration;

use diesel::prelude::*;
use ensemble_types::time::Timestamp;

use crate::types::{IntoDb, Moment};
use crate::{Conn, StoreError, on};

/// How long a key is remembered.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the second request waits for the first; then [`StoreError::Busy`], which is 409 CONFLICT.
pub const WAIT: Duration = Duration::from_secs(5);

diesel::table! {
    use diesel::sql_types::{Binary, Text};
    use super::Moment;

    idempotency_keys (scope, route, key) {
        scope -> Text,
        route -> Text,
        key -> Text,
        body_hash -> Binary,
        resource -> Text,
        created_at -> Moment,
    }
}

/// A request that carries an `Idempotency-Key`.
#[derive(Clone, Debug)]
pub struct IdempotencyRequest {
    /// The account (for voice: `userId`).
    pub scope: String,
    /// As in `POST /v1/sessions`.
    pub route: &'static str,
    /// The header's value.
    pub key: String,
    /// SHA-256 of the body.
    pub body_hash: [u8; 32],
}

/// What a key says about its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyOutcome {
    /// The key is new: make the resource with the id that was given, in this transaction.
    New,
    /// An earlier request made the resource with this id. Answer 200 and the resource as it is now; 404 if it was deleted.
    Replay { resource: String },
    /// The key was used with another body: 409 IDEMPOTENCY_MISMATCH.
    Mismatch,
}

/// Claims a key for `resource`, the id that is to be made. Call it first in the transaction.
pub fn claim(tx: &mut Conn, request: &IdempotencyRequest, resource: &str) -> Result<IdempotencyOutcome, StoreError> {
    use idempotency_keys::dsl;
    let at = tx.now()?;
    let forgotten = at.minus(KEPT);
    on!(tx, |c| diesel::delete(
        dsl::idempotency_keys
            .filter(dsl::scope.eq(&request.scope).and(dsl::route.eq(request.route)).and(dsl::key.eq(&request.key)))
            .filter(dsl::created_at.lt(forgotten.db()))
    )
    .execute(c))?;
    if tx.is_postgres() {
        // The lock's timeout must end the wait first, because only its error is recognised as a lock that is held.
        let ms = WAIT.as_millis();
        tx.batch(&format!("SET LOCAL lock_timeout = {ms}; SET LOCAL statement_timeout = {}", ms + 1_000))?;
    }
    let row = (
        dsl::scope.eq(&request.scope),
        dsl::route.eq(request.route),
        dsl::key.eq(&request.key),
        dsl::body_hash.eq(request.body_hash.as_slice()),
        dsl::resource.eq(resource),
        dsl::created_at.eq(at.db()),
    );
    // A second request waits here: PostgreSQL blocks the insert until the first transaction has ended.
    let inserted = tx.while_waiting(WAIT, |tx| {
        on!(tx, |c| diesel::insert_into(dsl::idempotency_keys).values(row).on_conflict_do_nothing().execute(c))
    })?;
    if inserted == 1 {
        return Ok(IdempotencyOutcome::New);
    }
    let (hash, resource): (Vec<u8>, String) = on!(tx, |c| dsl::idempotency_keys
        .find((&request.scope, request.route, &request.key))
        .select((dsl::body_hash, dsl::resource))
        .first(c))?;
    Ok(if hash == request.body_hash { IdempotencyOutcome::Replay { resource } } else { IdempotencyOutcome::Mismatch })
}

/// Points a key that was claimed in this transaction to another resource, when the one that was to be made is there already.
pub fn point(tx: &mut Conn, request: &IdempotencyRequest, resource: &str) -> Result<(), StoreError> {
    use idempotency_keys::dsl;
    let row = dsl::idempotency_keys.find((&request.scope, request.route, &request.key));
    on!(tx, |c| diesel::update(row).set(dsl::resource.eq(resource)).execute(c))?;
    Ok(())
}

/// Forgets keys that are older than [`KEPT`], at most `limit` of them; gives how many there were.
pub fn forget_old(tx: &mut Conn, limit: i64) -> Result<usize, StoreError> {
    use idempotency_keys::dsl;
    let forgotten: Timestamp = tx.now()?.minus(KEPT);
    let old: Vec<(String, String, String)> = on!(tx, |c| dsl::idempotency_keys
        .filter(dsl::created_at.lt(forgotten.db()))
        .select((dsl::scope, dsl::route, dsl::key))
        .limit(limit)
        .load(c))?;
    for (scope, route, key) in &old {
        on!(tx, |c| diesel::delete(dsl::idempotency_keys.find((scope, route, key))).execute(c))?;
    }
    Ok(old.len())
}
