//! What can go wrong with a call to a peer, in the few kinds that a caller treats differently.

use ensemble_chassis::RpcStatus;
use ensemble_types::problem::{Code, Problem};

/// A failed call. The texts are for logs; a peer that implements a contract makes them, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The peer cannot be reached, or cannot do it at the moment. Whether a write took place is not known.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// It did not answer in time. Whether a write took place is not known.
    #[error("no answer in time: {0}")]
    Deadline(String),
    /// What was asked for does not exist. This is an answer, as good as any.
    #[error("not found: {0}")]
    NotFound(String),
    /// The request is not one that the peer understands: a mistake of ours.
    #[error("refused as invalid: {0}")]
    Invalid(String),
    /// A mistake of the peer's, or an answer that cannot be read.
    #[error("failed: {0}")]
    Internal(String),
}

impl RpcError {
    /// What a caller of the public interface is told when nothing better is known. The rest is logged here.
    pub fn into_problem(self) -> Problem {
        match self {
            Self::Unavailable(_) | Self::Deadline(_) => {
                tracing::warn!(error = %self, "A peer is not available");
                Problem::new(
                    Code::Unavailable,
                    "A part of the service is not available at the moment. Try again shortly.",
                )
                .with_retry_after(1)
            }
            Self::NotFound(_) => Problem::not_found(),
            Self::Invalid(_) | Self::Internal(_) => {
                tracing::error!(error = %self, "A call to a peer failed");
                Problem::new(
                    Code::Internal,
                    "Something went wrong in the service. Quote the request id when you report it.",
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
                // Who called logs it too, but knows less of why.
                tracing::error!(error = %message, "An internal call failed");
                Self { code: "internal", message }
            }
        }
    }
}
