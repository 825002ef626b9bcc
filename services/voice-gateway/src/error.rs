//! Everything that can go wrong here, and the problem that a caller is told. The only file that knows codes of problems.

use ensemble_chassis::IntoProblem;
use ensemble_store_kit::StoreError;
use ensemble_types::problem::{Code, Problem};

use crate::clients::livekit::CallError;
use crate::domain::tool_bridge::BadToolBridge;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the room service failed")]
    RoomService(#[source] CallError),
    #[error("a message could not be put into JSON")]
    Shape(#[source] serde_json::Error),
    #[error("toolBridgeBaseUrl {0}")]
    ToolBridge(#[from] BadToolBridge),
    #[error("the key was used with another body")]
    IdempotencyMismatch,
    #[error("the first start with this key is still going on")]
    InFlight,
    #[error("the voice session that this start made is over")]
    SessionOver,
    /// There is no such voice session, or it belongs to another user. The member that says so.
    #[error("unknown voice session")]
    Unknown(&'static str),
    #[error("the voice session is not live")]
    NotLive,
    #[error("the queue of the voice session is full")]
    QueueFull,
    #[error("too many requests")]
    TooMany { retry_after: u32 },
    #[error("the room of this session is still being made")]
    TooEarly,
    /// The person's token belongs to somebody else than `userId`.
    #[error("the token is another user's")]
    OtherUser,
    #[error("no valid credential")]
    Unauthenticated,
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::Store(error) => error.into_problem(),
            Self::RoomService(error) => room_service(&error),
            Self::Shape(error) => {
                tracing::error!(%error, "A message could not be put into JSON");
                Problem::new(
                    Code::Internal,
                    "Something went wrong in the service. Quote the request id when you report it.",
                )
            }
            Self::ToolBridge(error) => Problem::field("/toolBridgeBaseUrl", error.to_string()),
            Self::IdempotencyMismatch => {
                Problem::new(Code::IdempotencyMismatch, "Use a new `Idempotency-Key` for another request.")
            }
            Self::InFlight => {
                Problem::new(Code::Conflict, "The first request with this `Idempotency-Key` is still going on.")
                    .with_retry_after(1)
            }
            Self::SessionOver => Problem::new(
                Code::SessionNotActive,
                "The voice session that this request started is over. Start another one.",
            ),
            Self::Unknown(member) => {
                Problem::new(Code::NotFound, "There is no voice session with this id.").with(member, false)
            }
            Self::NotLive => Problem::new(Code::SessionNotActive, "The voice session is over.").with("accepted", false),
            Self::QueueFull => {
                Problem::new(Code::RateLimited, "The agent has not taken the texts before this one. Wait for it.")
                    .with("accepted", false)
                    .with_retry_after(2)
            }
            Self::TooMany { retry_after } => {
                Problem::new(Code::RateLimited, "Slow down; see `Retry-After`.").with_retry_after(retry_after)
            }
            Self::TooEarly => {
                Problem::new(Code::Unavailable, "The room is still being made. Say it again in a moment.")
                    .with_retry_after(1)
            }
            Self::OtherUser => {
                Problem::new(Code::Forbidden, "The token in `Authorization` belongs to another user than `userId`.")
            }
            Self::Unauthenticated => Problem::unauthenticated(),
        }
    }
}

fn room_service(error: &CallError) -> Problem {
    if let CallError::Open { retry_after } = error {
        return Problem::new(Code::Unavailable, "The room service is away. Try again shortly.")
            .with_retry_after(u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1));
    }
    if error.is_retryable() {
        return Problem::new(Code::Unavailable, "The room service did not answer. Try again shortly.")
            .with_retry_after(2);
    }
    tracing::error!(%error, "LiveKit refused a call");
    Problem::new(Code::UpstreamError, "The room service refused the call. The operator of this server must look at it.")
}
