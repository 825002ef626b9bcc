//! Every error of this service, and the problem that a caller gets for it.

use ensemble_chassis::IntoProblem;
use ensemble_rpc::RpcError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_store_kit::{QuotaExceeded, StoreError};
use ensemble_types::problem::{Code, Problem};
use serde_json::json;

use crate::domain::Invalid;
use crate::domain::access::Refusal;
use crate::domain::message::BadEpoch;
use crate::operations::quotas::Quotas;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    /// Nothing was changed. Holds the current version and value.
    #[error("the expected version is not the current one, {version}")]
    VersionMismatch { version: i64, value: Option<String> },
    /// Another process of the machine hosts the session, and its last beat is fresh.
    #[error("another process hosts the session")]
    OtherHost,
    #[error("only the machine that hosts the session does this")]
    HostOnly,
    #[error("no machine hosts the session")]
    NotHosted,
    /// It has no stream open, or has not answered in time.
    #[error("the machine does not answer")]
    MachineAway,
    #[error("the caller has the most looks that may wait at once, or all have")]
    TooManyLooks,
    #[error("the service is about to stop")]
    Stopping,
    #[error("a session has this id")]
    IdTaken,
    #[error("another session has the ref of this id")]
    RefTaken,
    /// The message is sealed with an older key than the session's.
    #[error("the session has a newer key, {current}")]
    KeyEpochOld { current: i64 },
    #[error("the idempotency key was used with another body")]
    IdempotencyMismatch,
    #[error("the machine does not exist or belongs to another user")]
    MachineNotFound,
    #[error("the user does not exist")]
    UserNotFound,
    /// The link is unknown, expired, used up or revoked, or its session is deleted. Callers cannot tell which.
    #[error("the link does not work")]
    LinkNotFound,
    #[error("the session has no link")]
    NoLink,
    #[error("the session has the most shares it can have")]
    TooManyShares,
    #[error(transparent)]
    QuotaExceeded(#[from] QuotaExceeded),
    /// The queued appends hold as much memory as they may.
    #[error("too many appends are queued")]
    Overloaded,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Peer(#[from] RpcError),
}

impl From<BadEpoch> for Error {
    fn from(bad: BadEpoch) -> Self {
        match bad {
            BadEpoch::Wrong(invalid) => invalid.into(),
            BadEpoch::Old { current } => Self::KeyEpochOld { current },
        }
    }
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::Refused(Refusal::NotFound) => Problem::not_found(),
            Self::Refused(Refusal::Forbidden) => Problem::new(
                Code::Forbidden,
                "Your access level does not allow this. Ask the session's owner for a higher one.",
            ),
            Self::Refused(Refusal::OwnerOnly) => {
                Problem::new(Code::Forbidden, "Only the owner of the session can do this. Ask the owner to do it.")
            }
            Self::Invalid(Invalid { pointer, detail }) => Problem::field(pointer, detail),
            Self::InvalidCursor(error) => error.into(),
            Self::VersionMismatch { version, value } => Problem::new(
                Code::VersionMismatch,
                "The value has changed since you read it. Apply your change to `current` and send it with its version.",
            )
            .with("current", json!({ "version": version, "value": value })),
            Self::Refused(Refusal::PeopleOnly) => {
                Problem::new(Code::Forbidden, "A machine's token cannot do this. Sign in as the session's owner.")
            }
            Self::Refused(Refusal::OtherMachine) => Problem::new(
                Code::Forbidden,
                "A machine's token creates sessions of its own machine only. Send its own `machineId`.",
            ),
            Self::OtherHost => Problem::new(
                Code::LeaseLost,
                "Another process hosts this session. End this one, or wait until the other has been silent for a minute.",
            ),
            Self::HostOnly => {
                Problem::new(Code::Forbidden, "Only the machine that hosts this session does this, with its own token.")
            }
            Self::NotHosted => Problem::field("/sessionId", "must be a session that a machine hosts: nothing answers for this one"),
            Self::MachineAway => Problem::new(
                Code::MachineAway,
                "The machine does not answer: it is switched off or offline, or its program is too old. Try again when it is back.",
            ),
            Self::TooManyLooks => Problem::new(
                Code::Unavailable,
                "Too many looks wait for machines, in all or of yours. Nothing was asked; try again when one is answered.",
            ),
            Self::Stopping => {
                Problem::new(Code::Unavailable, "The service is about to stop, and the machine may not have answered. Try again.")
            }
            Self::RefTaken => Problem::new(Code::Conflict, "Another session has the ref of this id. Make a new id."),
            Self::IdTaken => Problem::new(Code::Conflict, "A session has this id. Make a new one."),
            Self::KeyEpochOld { current } => Problem::new(
                Code::KeyEpochOld,
                "The session has a newer key. Read the session, seal the message with the key of epoch `current`, and send it again.",
            )
            .with("current", current),
            Self::IdempotencyMismatch => Problem::new(
                Code::IdempotencyMismatch,
                "This `Idempotency-Key` was used with a different body. Send the same body, or use a new key.",
            ),
            Self::MachineNotFound => Problem::new(
                Code::MachineNotFound,
                "You have no machine with this id. Register it first with POST /v1/machines.",
            ),
            Self::UserNotFound => {
                Problem::new(Code::UserNotFound, "There is no user with this id. Check `userId` and try again.")
            }
            Self::LinkNotFound => Problem::new(
                Code::LinkNotFound,
                "This link is not valid, or not any more. Ask the person who shared it for a new one.",
            ),
            Self::NoLink => {
                Problem::new(Code::LinkNotFound, "This session has no public link, or the link has expired.")
            }
            Self::TooManyShares => Problem::new(
                Code::Conflict,
                "This session already has 100 shares, the maximum. Remove one before you add another.",
            ),
            Self::QuotaExceeded(exceeded) => quota_exceeded(exceeded),
            Self::Overloaded => {
                Problem::new(Code::Unavailable, "Too many messages are waiting to be stored. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::Store(error) => error.into_problem(),
            Self::Peer(error) => error.into_problem(),
        }
    }
}

fn quota_exceeded(QuotaExceeded { quota, limit, used }: QuotaExceeded) -> Problem {
    let detail = if quota == Quotas::SESSIONS {
        format!("You have {used} sessions and may have {limit}. Delete sessions that you no longer need.")
    } else {
        format!(
            "The messages of the session's owner take {used} of {limit} bytes, and these do not fit. The owner can delete \
             sessions that are no longer needed."
        )
    };
    Problem::quota_exceeded(quota, limit, used, detail)
}
