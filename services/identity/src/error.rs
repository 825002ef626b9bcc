//! Every error of this service, and the problem that a caller gets for it. The only file here that knows HTTP statuses.

use ensemble_chassis::IntoProblem;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};

use crate::domain::{BadAccountChange, BadLifetime, MalformedProof, Registration};
use crate::keys::RingError;

/// A tenth of an hour. The edge allows ten new accounts an hour, so the next one is allowed after about this.
const NEXT_ACCOUNT_SECONDS: u32 = 360;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no such account")]
    AccountNotFound,
    #[error("the account has no such token")]
    TokenNotFound,
    #[error("the challenge or the proof is not valid")]
    InvalidProof,
    #[error("there is no such account, and none may be made")]
    NoAccount(Registration),
    #[error("too many challenges are open")]
    TooManyChallenges,
    #[error("the account has too many machine tokens")]
    TooManyTokens,
    #[error(transparent)]
    MalformedProof(#[from] MalformedProof),
    #[error(transparent)]
    BadAccountChange(#[from] BadAccountChange),
    #[error(transparent)]
    BadLifetime(#[from] BadLifetime),
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::AccountNotFound | Self::TokenNotFound => Problem::not_found(),
            // The same text for every reason, so that it does not reveal which part was right.
            Self::InvalidProof => Problem::new(
                Code::Unauthenticated,
                "The sign-in was not accepted. Ask for a new challenge, and sign it for the origin that you called.",
            ),
            Self::NoAccount(Registration::Limited) => {
                Problem::new(Code::RateLimited, "Too many accounts were made from your address. Try again later.")
                    .with_retry_after(NEXT_ACCOUNT_SECONDS)
            }
            Self::NoAccount(_) => {
                Problem::new(Code::RegistrationClosed, "This server makes no new accounts. Ask its operator for one.")
            }
            Self::TooManyChallenges => {
                Problem::new(Code::Unavailable, "Too many sign-ins are in progress. Try again shortly.")
                    .with_retry_after(5)
            }
            Self::TooManyTokens => Problem::new(
                Code::Conflict,
                "The account has the maximum number of machine tokens. Wait until some have expired.",
            ),
            Self::MalformedProof(malformed) => Problem::field(format!("/{}", malformed.field), malformed.rule),
            Self::BadAccountChange(BadAccountChange::Empty) => {
                Problem::new(Code::InvalidArgument, "Send `displayName`, or `contentPublicKey` with its signature.")
            }
            Self::BadAccountChange(BadAccountChange::Field { field, rule }) => {
                Problem::field(format!("/{field}"), rule)
            }
            Self::BadLifetime(bad) => Problem::field("/expiresInSeconds", bad.to_string()),
            Self::InvalidCursor(invalid) => invalid.into(),
            Self::Ring(RingError::Store(error)) | Self::Store(error) => error.into_problem(),
            Self::Ring(error) => {
                tracing::error!(%error, "The signing keys cannot be used");
                Problem::new(Code::Unavailable, "Tokens cannot be made at the moment. Try again shortly.")
            }
        }
    }
}

impl IntoProblem for MalformedProof {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}

impl IntoProblem for BadAccountChange {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}

impl IntoProblem for BadLifetime {
    fn into_problem(self) -> Problem {
        Error::from(self).into_problem()
    }
}
