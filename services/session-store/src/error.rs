//! Every error of this service, and the problem that a caller gets for it.

use ensemble_chassis::IntoProblem;
use ensemble_rpc::RpcError;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};
use serde_json::json;

use crate::domain::Invalid;
use crate::domain::access::Refusal;

#[derive(Debug)]
pub(crate) enum Error {
    Refused(Refusal),
    Invalid(Invalid),
    InvalidCursor,
    /// Nothing was changed; this is how it stands.
    VersionMismatch {
        version: i64,
        value: Option<String>,
    },
    IdempotencyMismatch,
    MachineNotFound,
    UserNotFound,
    /// Unknown, expired, used up, revoked, or its session is gone: nobody learns which.
    LinkNotFound,
    TooManyShares,
    /// More appends are waiting than can be committed soon.
    Overloaded,
    Store(StoreError),
    Peer(RpcError),
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::Refused(Refusal::NotFound) => Problem::not_found(),
            Self::Refused(Refusal::Forbidden) => {
                Problem::new(Code::Forbidden, "Your access to this session does not go so far. Ask its owner.")
            }
            Self::Invalid(Invalid { pointer, detail }) => Problem::field(pointer, detail),
            Self::InvalidCursor => InvalidCursor.into(),
            Self::VersionMismatch { version, value } => {
                Problem::new(Code::VersionMismatch, "Apply your change to `current` and send it with its version.")
                    .with("current", json!({ "version": version, "value": value }))
            }
            Self::IdempotencyMismatch => Problem::new(
                Code::IdempotencyMismatch,
                "Send the same body with the same `Idempotency-Key`, or a new key.",
            ),
            Self::MachineNotFound => {
                Problem::new(Code::MachineNotFound, "Register the machine first, with POST /v1/machines.")
            }
            Self::UserNotFound => Problem::new(Code::UserNotFound, "Check the id of the user to share with."),
            Self::LinkNotFound => Problem::new(Code::LinkNotFound, "Ask whoever gave it to you for a new one."),
            Self::TooManyShares => {
                Problem::new(Code::Conflict, "A session has at most 100 shares. Remove one before you add another.")
            }
            Self::Overloaded => {
                Problem::new(Code::Unavailable, "Too many messages are waiting to be stored. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Store(error) => error.into_problem(),
            Self::Peer(error) => error.into_problem(),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<InvalidCursor> for Error {
    fn from(_: InvalidCursor) -> Self {
        Self::InvalidCursor
    }
}
