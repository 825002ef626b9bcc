//! What a caller of the public interface sees of an error of the database. The only file here that knows problems
//! (RFC 9457); it exists so that all services say the same.

use ensemble_types::problem::{Code, Problem};

use crate::StoreError;
use crate::cursor::InvalidCursor;
use crate::error::is_full;

impl StoreError {
    /// The problem for the caller. What the caller must not see is logged here.
    pub fn into_problem(self) -> Problem {
        match &self {
            Self::Unavailable { reason, .. } if is_full(reason) => {
                tracing::error!(error = %self, "The disk of the database is full");
                Problem::new(
                    Code::Unavailable,
                    "The disk of the server is full, so nothing can be stored. Its operator has to make room.",
                )
                .with_retry_after(10)
            }
            Self::Unavailable { .. } => {
                tracing::warn!(error = %self, "The database is not available");
                Problem::new(Code::Unavailable, "The database is not available at the moment. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Busy { .. } => {
                Problem::new(Code::Conflict, "Another request is changing the same resource. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Duplicate { .. } => {
                tracing::info!(error = %self, "A unique constraint refused a row");
                Problem::new(Code::Conflict, "The resource exists already.")
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

impl From<InvalidCursor> for Problem {
    fn from(_: InvalidCursor) -> Self {
        Self::new(Code::InvalidCursor, "Use `nextCursor` of the same list unchanged, or begin without a cursor.")
    }
}
