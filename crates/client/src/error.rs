//! The errors of a call.

use std::time::Duration;

use ensemble_types::problem::{Code, Problem};

use crate::no_connection::NoConnection;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that failed after all its retries.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service answered with a problem. Match on its `code`.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// No connection could be made, so the request had no effect.
    #[error("could not connect to {origin}")]
    Unreachable {
        origin: String,
        why: NoConnection,
        #[source]
        source: reqwest::Error,
    },
    /// The service refused the sign-in, and accepts none for the origin that was called.
    #[error("{origin} accepts sign-ins only at {}", accepted.join(", "))]
    WrongOrigin { origin: String, accepted: Vec<String> },
    /// The connection broke during the request, which may or may not have had its effect.
    #[error("the connection to {origin} broke")]
    ConnectionLost {
        origin: String,
        #[source]
        source: reqwest::Error,
    },
    /// No response in time. The request may or may not have had its effect.
    #[error("no response from {origin} within {} s", waited.as_secs_f32())]
    TimedOut { origin: String, waited: Duration },
    /// An error status without a problem body: the response did not come from this service.
    #[error("{origin} answered with status {status} and is not this service; check the address")]
    ForeignServer { origin: String, status: u16 },
    /// The service does not have the address that was called, so it is older than this program.
    #[error(
        "the server at {origin} is older than this program and does not know this call; update the server, or check its address"
    )]
    OlderServer { origin: String },
    /// A success status with a body that does not match the interface.
    #[error("the response to {call} could not be read")]
    InvalidResponse {
        call: String,
        #[source]
        source: serde_json::Error,
    },
    /// The service ended a stream for this reason, and the stream cannot be resumed.
    #[error("the stream has ended: {reason}")]
    StreamEnded { reason: String },
    /// The address of the server is not an http or https address.
    #[error("{0:?} is not an http:// or https:// address")]
    Address(String),
    /// A value that the service would refuse.
    #[error("{0}")]
    Argument(String),
    /// The call needs a credential that this client does not have.
    #[error("this call needs {0}")]
    NoCredential(&'static str),
    /// The service gave a device list that must not be used.
    #[error("{0}; do not trust this server")]
    DeviceList(ensemble_protocol::lists::ListError),
    /// The service gave an older device list than it did before, or another one of the same version.
    #[error("the server shows an old device list, or another one than before; do not trust it")]
    OldDeviceList,
    /// The service answered with another record than the one that was asked for.
    #[error("the server answered with something else than what was asked for; do not trust it")]
    OtherRecord,
    /// The service gave something the short name of something else.
    #[error("the server gave a ref that does not belong to the id; do not trust it")]
    OtherRef,
    /// The HTTP client could not be set up, for example because the system has no certificates.
    #[error("the HTTP client could not be set up")]
    Setup(#[source] reqwest::Error),
}

/// Refuses an answer about another record than the one that was asked for: what a person does next is about that one.
pub(crate) fn asked_for<T: PartialEq>(asked: &T, answered: &T) -> Result<()> {
    if asked == answered { Ok(()) } else { Err(Error::OtherRecord) }
}

impl Error {
    /// Whether the same call may succeed later: the server is down, or has too much to do.
    pub fn is_passing(&self) -> bool {
        crate::retry::again(self, crate::retry::Repeat::Harmless).is_some()
    }

    /// The code of the problem, when the service answered with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// Whether the service returned this code.
    pub fn is(&self, code: Code) -> bool {
        self.code() == Some(code)
    }

    /// Whether it is one of the 404 codes: what was named is not there. An [`Error::OlderServer`] says nothing about that.
    pub fn is_not_found(&self) -> bool {
        self.code().is_some_and(|code| code.status() == 404)
    }

    /// Whether the same call may succeed later: the service is unavailable, busy or shutting down.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::ConnectionLost { .. } | Self::TimedOut { .. } => true,
            Self::ForeignServer { status, .. } => matches!(status, 502..=504),
            Self::Problem(problem) => matches!(problem.code.status(), 408 | 429 | 502..=504),
            _ => false,
        }
    }

    pub(crate) fn of(origin: &str, source: reqwest::Error) -> Self {
        // The address in an error could contain a link token.
        let source = source.without_url();
        if source.is_connect() {
            Self::Unreachable { origin: origin.to_owned(), why: NoConnection::of(&source), source }
        } else {
            Self::ConnectionLost { origin: origin.to_owned(), source }
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}
