//! Every error of this service, and the problem that a caller gets for it. The only file here that knows HTTP statuses.

use ensemble_chassis::IntoProblem;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};
use serde_json::json;

use crate::domain::{BadChange, OtherMachine, VersionMismatch};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the account has no such machine")]
    MachineNotFound,
    #[error("another machine of the account has the ref of this id")]
    RefTaken,
    #[error("the idempotency key was used with another body")]
    IdempotencyMismatch,
    #[error("the account has {used} machines")]
    TooManyMachines { used: i64, limit: i64 },
    #[error(transparent)]
    OtherMachine(#[from] OtherMachine),
    #[error(transparent)]
    BadChange(#[from] BadChange),
    #[error(transparent)]
    VersionMismatch(#[from] VersionMismatch),
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::MachineNotFound => Problem::not_found(),
            Self::RefTaken => {
                Problem::new(Code::Conflict, "Another machine of yours has the ref of this id. Choose another id.")
            }
            Self::IdempotencyMismatch => {
                Problem::new(Code::IdempotencyMismatch, "Use a new `Idempotency-Key` for a new request.")
            }
            Self::TooManyMachines { used, limit } => Problem::quota_exceeded(
                "machines",
                limit,
                used,
                format!("You have {used} machines and may have {limit}. Delete machines that you no longer use."),
            ),
            Self::OtherMachine(_) => {
                Problem::new(Code::Forbidden, "This token acts for its own machine only. Use a user's token.")
            }
            Self::BadChange(bad) => bad.into_problem(),
            Self::VersionMismatch(mismatch) => Problem::new(
                Code::VersionMismatch,
                format!(
                    "`{}` has another version. Merge your change with `current` and send its version.",
                    mismatch.field
                ),
            )
            .with("field", mismatch.field)
            .with("current", json!({ "version": mismatch.current.version, "value": mismatch.current.value })),
            Self::InvalidCursor(invalid) => invalid.into(),
            Self::Store(error) => error.into_problem(),
        }
    }
}

impl IntoProblem for BadChange {
    fn into_problem(self) -> Problem {
        match self {
            Self::Empty => Problem::new(
                Code::InvalidArgument,
                "Send at least one of `metadata`, `daemonState`, `activity` and `encryptionKey`.",
            ),
            Self::AmbiguousVersion => Problem::field(
                "/expectedVersion",
                "goes with exactly one of metadata and daemonState; use expectedMetadataVersion and \
                 expectedDaemonStateVersion to name them",
            ),
            Self::StrayEpoch => Problem::field("/contentEpoch", "belongs to encryptionKey; send both"),
            Self::StrayVersion(name) => Problem::field(
                format!("/{name}"),
                "goes with the field it names, and not together with expectedVersion",
            ),
        }
    }
}

impl IntoProblem for OtherMachine {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}
