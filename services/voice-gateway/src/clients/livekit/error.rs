//! How a call to LiveKit can fail.

use std::time::Duration;

/// The body of an answer that is not Twirp is never kept: LiveKit's 401 contains the token that it refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("LiveKit answered {code} ({status}): {msg}")]
    Twirp { status: u16, code: String, msg: String },
    #[error("LiveKit answered with status {status} and no Twirp error")]
    Http { status: u16 },
    #[error("LiveKit did not answer in time")]
    Timeout,
    #[error("LiveKit cannot be reached")]
    Connect(#[source] reqwest::Error),
    #[error("LiveKit's answer cannot be read")]
    Protocol(#[source] prost::DecodeError),
    #[error("the request to LiveKit could not be signed")]
    Token(#[from] super::TokenError),
    /// The breaker is open; LiveKit was not called.
    #[error("LiveKit is unavailable")]
    Open { retry_after: Duration },
}

impl CallError {
    /// Whether the same call may succeed a moment later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Twirp { code, .. } => {
                matches!(code.as_str(), "unavailable" | "deadline_exceeded" | "internal" | "unknown")
            }
            Self::Http { status } => *status >= 500 || *status == 429,
            Self::Timeout | Self::Connect(_) => true,
            Self::Protocol(_) | Self::Token(_) | Self::Open { .. } => false,
        }
    }

    /// LiveKit as a whole is unavailable. `about_room`: the method is served by the node that has the room, and LiveKit
    /// answers "unavailable" also when there is no such node.
    pub(super) fn is_outage(&self, about_room: bool) -> bool {
        match self {
            Self::Twirp { .. } => !about_room && self.is_retryable(),
            _ => self.is_retryable(),
        }
    }

    /// Our key or secret is wrong, or a grant is missing. Repeating does not help.
    pub(crate) fn is_auth(&self) -> bool {
        match self {
            Self::Twirp { code, .. } => matches!(code.as_str(), "unauthenticated" | "permission_denied"),
            Self::Http { status } => matches!(status, 401 | 403),
            _ => false,
        }
    }

    pub(crate) fn twirp_code(&self) -> Option<&str> {
        match self {
            Self::Twirp { code, .. } => Some(code),
            _ => None,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.twirp_code() == Some("not_found")
    }

    /// A label for metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Twirp { code, .. } => match code.as_str() {
                "not_found" => "not_found",
                "unauthenticated" | "permission_denied" => "auth",
                "invalid_argument" | "malformed" | "bad_route" | "unimplemented" => "refused",
                "resource_exhausted" => "exhausted",
                "canceled" => "canceled",
                _ => "twirp",
            },
            Self::Http { status: 401 | 403 } => "auth",
            Self::Http { .. } => "http",
            Self::Timeout => "timeout",
            Self::Connect(_) => "connect",
            Self::Protocol(_) => "protocol",
            Self::Token(_) => "token",
            Self::Open { .. } => "open",
        }
    }
}
