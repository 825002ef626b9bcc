//! Errors of a database, in the few kinds that a caller treats differently.

use std::sync::Arc;

use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// A failed read or write. `operation` is the name that was given to [`crate::Db::read`] or [`crate::Db::write`]. Cheap to
/// clone, so that a failed batch can answer all of its callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is too slow or is full. Whether a write took place is not known.
    #[error("{operation}: the database is not available: {reason}")]
    Unavailable { operation: &'static str, reason: String },
    /// Another transaction holds a lock that this one needs, and did not end in time. Nothing was changed.
    #[error("{operation}: another transaction is in the way")]
    Busy { operation: &'static str },
    /// A unique constraint: its name on PostgreSQL, its columns (`table.column, …`) on SQLite. Nothing was changed.
    #[error("{operation}: {constraint} is taken")]
    Duplicate { operation: &'static str, constraint: String },
    /// A mistake of ours: SQL that does not fit the schema, or a row that cannot be.
    #[error("{operation}: failed")]
    Broken {
        operation: &'static str,
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// A row that cannot be a valid state is an error and not a default.
    pub fn bad_row(operation: &'static str, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken { operation, source: Arc::from(why.into()) }
    }
}

/// How PostgreSQL and SQLite say that there is no room left.
const FULL: [&str; 2] = ["No space left", "disk is full"];

/// Whether this is the reason why a database is not available.
pub(crate) fn is_full(reason: &str) -> bool {
    FULL.iter().any(|part| reason.contains(part))
}

/// What an error says about the connection it came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// Nothing.
    Healthy,
    /// It is gone: everything after this fails too.
    Broken,
    /// The transaction lost against another one, or the ref of its new row was taken. It may be tried again.
    Conflict,
}

/// Whether a unique constraint is that of refs: the index `<table>_ref` on PostgreSQL, the column `<table>.ref` on SQLite. A ref is
/// computed from the id, so a transaction that makes the id finds another ref when it is tried again.
fn is_of_refs(constraint: &str) -> bool {
    constraint.ends_with("_ref") || constraint.ends_with(".ref")
}

/// What an error of diesel means.
///
/// diesel names a kind for some SQLSTATEs and keeps the others to itself, so a few kinds are recognised by the English
/// messages of PostgreSQL (src/backend/tcop/postgres.c, storage/lmgr) and SQLite (sqlite3_errstr). An unknown error is
/// [`StoreError::Broken`].
pub(crate) fn classify(operation: &'static str, error: DieselError) -> (StoreError, ConnState) {
    let unavailable = |reason: &str| StoreError::Unavailable { operation, reason: reason.to_owned() };
    let (kind, info) = match error {
        DieselError::DatabaseError(kind, info) => (kind, info),
        DieselError::BrokenTransactionManager => return (unavailable("the transaction was lost"), ConnState::Broken),
        other => return (StoreError::Broken { operation, source: Arc::new(other) }, ConnState::Healthy),
    };
    let message = info.message();
    match kind {
        DatabaseErrorKind::UniqueViolation => {
            let columns = message.trim_start_matches("UNIQUE constraint failed: ");
            let constraint = info.constraint_name().unwrap_or(columns).to_owned();
            let state = if is_of_refs(&constraint) { ConnState::Conflict } else { ConnState::Healthy };
            return (StoreError::Duplicate { operation, constraint }, state);
        }
        DatabaseErrorKind::SerializationFailure => return (StoreError::Busy { operation }, ConnState::Conflict),
        // A server that became a standby refuses writes; a new connection may lead to the primary.
        DatabaseErrorKind::ClosedConnection
        | DatabaseErrorKind::UnableToSendCommand
        | DatabaseErrorKind::ReadOnlyTransaction => return (unavailable(message), ConnState::Broken),
        _ => {}
    }
    let has_any = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    if has_any(&["deadlock detected"]) {
        (StoreError::Busy { operation }, ConnState::Conflict)
    } else if has_any(&["lock timeout", "database is locked", "table is locked"]) {
        (StoreError::Busy { operation }, ConnState::Healthy)
    } else if has_any(&["statement timeout"]) {
        (unavailable(message), ConnState::Healthy)
    } else if has_any(&["terminating connection", "server closed the connection", "no connection to"])
        || is_full(message)
        || has_any(&["disk I/O error", "out of memory"])
    {
        (unavailable(message), ConnState::Broken)
    } else {
        let source = Arc::new(DieselError::DatabaseError(kind, info));
        (StoreError::Broken { operation, source }, ConnState::Healthy)
    }
}
