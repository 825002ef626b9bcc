//! Every error of this service, and what a caller is told of it. The only file here that knows HTTP.

use ensemble_chassis::IntoProblem;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};

use crate::domain::{BadAccountChange, BadLifetime, MalformedProof, Newcomers};
use crate::keys::RingError;

/// A tenth of an hour: about when the next of ten accounts an hour may be made.
const NEXT_ACCOUNT_SECONDS: u32 = 360;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no such account")]
    NoSuchAccount,
    #[error("the account has no such token")]
    NoSuchToken,
    #[error("the sign-in proves nothing")]
    BadProof,
    #[error("there is no such account, and none is made")]
    TurnedAway(Newcomers),
    #[error("as many challenges are out as may be")]
    TooManyChallenges,
    #[error("the account has as many machine tokens as it may")]
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
            Self::NoSuchAccount | Self::NoSuchToken => Problem::not_found(),
            // One text for whatever was wrong, so that nobody learns which part was right.
            Self::BadProof => Problem::new(
                Code::Unauthenticated,
                "The sign-in was not accepted. Ask for a new challenge, and sign it for the origin that you dialled.",
            ),
            Self::TurnedAway(Newcomers::Later) => Problem::new(
                Code::RateLimited,
                "Too many accounts were made from your address lately. Try again later.",
            )
            .with_retry_after(NEXT_ACCOUNT_SECONDS),
            Self::TurnedAway(_) => {
                Problem::new(Code::RegistrationClosed, "Ask whoever runs this server for an account.")
            }
            Self::TooManyChallenges => {
                Problem::new(Code::Unavailable, "Too many sign-ins are under way. Try again shortly.")
                    .with_retry_after(5)
            }
            Self::TooManyTokens => Problem::new(
                Code::Conflict,
                "The account has as many machine tokens as it may. Wait until some have expired.",
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
