//! The kinds of failed calls to a peer, one for each kind that a caller treats differently.

use ensemble_chassis::RpcStatus;
use ensemble_types::problem::{Code, Problem};

/// A failed call. The texts are for logs. Peers that implement a contract also create these errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The peer cannot be reached, or is not ready. Whether a write took place is unknown.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The peer did not respond in time. Whether a write took place is unknown.
    #[error("no response in time: {0}")]
    Deadline(String),
    /// The requested item does not exist. This is a valid answer of the peer.
    #[error("not found: {0}")]
    NotFound(String),
    /// The peer does not understand the request: a fault of the caller.
    #[error("refused as invalid: {0}")]
    Invalid(String),
    /// A fault of the peer, or a response that cannot be read.
    #[error("failed: {0}")]
    Internal(String),
}

impl RpcError {
    /// The problem for the public interface when the caller knows nothing more specific. The details are logged here.
    pub fn into_problem(self) -> Problem {
        match self {
            Self::Unavailable(_) | Self::Deadline(_) => {
                tracing::warn!(error = %self, "A peer is unavailable");
                Problem::new(Code::Unavailable, "A part of the service is temporarily unavailable. Try again shortly.")
                    .with_retry_after(1)
            }
            Self::NotFound(_) => Problem::not_found(),
            Self::Invalid(_) | Self::Internal(_) => {
                tracing::error!(error = %self, "A call to a peer failed");
                Problem::new(
                    Code::Internal,
                    "The service failed unexpectedly. Quote the request id when you report it.",
                )
            }
        }
    }

    /// The code and text of a Twirp error body.
    pub(crate) fn from_wire(code: &str, message: String) -> Self {
        match code {
            "not_found" => Self::NotFound(message),
            "invalid_argument" => Self::Invalid(message),
            "unavailable" => Self::Unavailable(message),
            _ => Self::Internal(format!("{code}: {message}")),
        }
    }
}

impl From<RpcError> for RpcStatus {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Unavailable(message) | RpcError::Deadline(message) => Self { code: "unavailable", message },
            RpcError::NotFound(message) => Self { code: "not_found", message },
            RpcError::Invalid(message) => Self { code: "invalid_argument", message },
            RpcError::Internal(message) => {
                // The caller logs it too, but with less detail.
                tracing::error!(error = %message, "An internal call failed");
                Self { code: "internal", message }
            }
        }
    }
}
