//! What can go wrong with a database, in the few kinds that a caller treats differently.

use std::sync::Arc;

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use ensemble_types::problem::{Code, Problem};

/// A failed read or write. `operation` is the name that was given to [`crate::Db::read`] or [`crate::Db::write`]. Cheap to
/// clone, so that a failed batch can answer all of its callers.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, is too slow or is full. Whether a write took place is not known.
    #[error("{operation}: the database is not available: {reason}")]
    Unavailable { operation: &'static str, reason: String },
    /// Somebody else holds what this needs and did not let go in time. Nothing was changed.
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

    /// What a caller of the public interface is told. The rest is logged here.
    pub fn into_problem(self) -> Problem {
        match &self {
            Self::Unavailable { .. } => {
                tracing::warn!(error = %self, "The database is not available");
                Problem::new(Code::Unavailable, "The database is not available at the moment. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Busy { .. } => {
                Problem::new(Code::Conflict, "The same thing is being done by another request. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Duplicate { .. } => {
                tracing::info!(error = %self, "A unique constraint refused a row");
                Problem::new(Code::Conflict, "It exists already.")
            }
            Self::Broken { source, .. } => {
                tracing::error!(error = %self, cause = %source, "A database operation failed");
                Problem::new(
                    Code::Internal,
                    "Something went wrong in the service. Quote the request id when you report it.",
                )
            }
        }
    }
}

/// What an error says about the connection it came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// Nothing.
    Healthy,
    /// It is gone: everything after this fails too.
    Broken,
    /// The transaction lost against another one and may be tried again.
    Conflict,
}

/// Sorts an error of diesel. The drivers tell SQLSTATE only in part, so some kinds are recognised by the messages of
/// PostgreSQL (src/backend/tcop/postgres.c, storage/lmgr) and SQLite (sqlite3_errstr).
pub(crate) fn sort(operation: &'static str, error: DieselError) -> (StoreError, ConnState) {
    let unavailable = |reason: &str| StoreError::Unavailable { operation, reason: reason.to_owned() };
    match error {
        DieselError::DatabaseError(kind, info) => {
            let message = info.message();
            let says = |part: &str| message.contains(part);
            match kind {
                DatabaseErrorKind::UniqueViolation => {
                    let constraint = info
                        .constraint_name()
                        .unwrap_or_else(|| message.trim_start_matches("UNIQUE constraint failed: "))
                        .to_owned();
                    (StoreError::Duplicate { operation, constraint }, ConnState::Healthy)
                }
                DatabaseErrorKind::ClosedConnection
                | DatabaseErrorKind::UnableToSendCommand
                | DatabaseErrorKind::ReadOnlyTransaction => (unavailable(message), ConnState::Broken),
                DatabaseErrorKind::SerializationFailure => (StoreError::Busy { operation }, ConnState::Conflict),
                _ if says("deadlock detected") => (StoreError::Busy { operation }, ConnState::Conflict),
                _ if says("lock timeout") || says("database is locked") || says("table is locked") => {
                    (StoreError::Busy { operation }, ConnState::Healthy)
                }
                _ if says("statement timeout") => (unavailable(message), ConnState::Healthy),
                _ if says("terminating connection")
                    || says("server closed the connection")
                    || says("no connection to") =>
                {
                    (unavailable(message), ConnState::Broken)
                }
                _ if says("No space left")
                    || says("disk is full")
                    || says("disk I/O error")
                    || says("out of memory") =>
                {
                    (unavailable(message), ConnState::Broken)
                }
                _ => {
                    let source = Arc::new(DieselError::DatabaseError(kind, info));
                    (StoreError::Broken { operation, source }, ConnState::Healthy)
                }
            }
        }
        DieselError::BrokenTransactionManager => (unavailable("the transaction was lost"), ConnState::Broken),
        other => (StoreError::Broken { operation, source: Arc::new(other) }, ConnState::Healthy),
    }
}
