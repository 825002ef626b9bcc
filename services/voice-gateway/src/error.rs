//! Every error of this service and the problem that the client gets. The only file that knows problem codes.

use ensemble_chassis::IntoProblem;
use ensemble_rpc::RpcError;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};

use crate::clients::livekit::CallError;
use crate::domain::tool_bridge::BadToolBridge;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error("the transcript was deleted")]
    TranscriptGone,
    #[error(transparent)]
    Peer(#[from] RpcError),
    #[error("the room service failed")]
    RoomService(#[source] CallError),
    #[error("a message could not be encoded as JSON")]
    Encode(#[source] serde_json::Error),
    #[error("toolBridgeBaseUrl {0}")]
    ToolBridge(#[from] BadToolBridge),
    #[error("the key was used with another body")]
    IdempotencyMismatch,
    #[error("the first start with this key has not finished")]
    InFlight,
    #[error("the voice session of this start has ended")]
    SessionOver,
    /// There is no such voice session, or it belongs to another user. With the member of the problem that is set to false.
    #[error("unknown voice session")]
    Unknown(&'static str),
    #[error("the voice session is not live")]
    NotLive,
    #[error("the queue of the voice session is full")]
    QueueFull,
    #[error("too many requests")]
    TooMany { counted: &'static str, retry_after: u32 },
    #[error("the agent has called its tools too often")]
    ToolCallsUsedUp,
    #[error("the room of this session is still being created")]
    TooEarly,
    /// The person's token belongs to another user than `userId`.
    #[error("the token is another user's")]
    OtherUser,
    #[error("the user's token started the session that this start would replace")]
    StartedByUser,
    #[error("no valid credential")]
    Unauthenticated,
    #[error("the caller of the start has disconnected")]
    CallerGone,
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::Store(error) => error.into_problem(),
            Self::InvalidCursor(error) => error.into(),
            Self::TranscriptGone => Problem::new(
                Code::NotFound,
                "What was said in this voice session has been deleted. It is kept until a while after its end.",
            ),
            Self::Peer(error) => error.into_problem(),
            Self::RoomService(error) => room_service(&error),
            Self::Encode(error) => {
                tracing::error!(%error, "A message could not be encoded as JSON");
                Problem::new(
                    Code::Internal,
                    "Something went wrong in the service. Quote the request id when you report it.",
                )
            }
            Self::ToolBridge(error) => Problem::field("/toolBridgeBaseUrl", error.to_string()),
            Self::IdempotencyMismatch => {
                Problem::new(Code::IdempotencyMismatch, "Use a new `Idempotency-Key` for another request.")
            }
            Self::InFlight => Problem::new(
                Code::Conflict,
                "The first request with this `Idempotency-Key` has not finished. Try again in a moment.",
            )
            .with_retry_after(1),
            Self::SessionOver => Problem::new(
                Code::SessionNotActive,
                "The voice session that this request started has ended. Start another one with a new `Idempotency-Key`.",
            ),
            Self::Unknown(member) => {
                Problem::new(Code::NotFound, "There is no voice session with this id.").with(member, false)
            }
            Self::NotLive => Problem::new(Code::SessionNotActive, "The voice session has ended. Start another one.")
                .with("accepted", false),
            Self::QueueFull => Problem::new(
                Code::RateLimited,
                "Too many texts wait for the agent. Send this one when the agent has taken one.",
            )
            .with("accepted", false)
            .with_retry_after(2),
            Self::TooMany { counted, retry_after } => Problem::new(
                Code::RateLimited,
                format!("There were too many {counted}. The next one is allowed in {retry_after} s."),
            )
            .with_retry_after(retry_after),
            Self::ToolCallsUsedUp => Problem::new(
                Code::RateLimited,
                "The agent of this voice session has called its tools as often as it may. Start another session.",
            ),
            Self::TooEarly | Self::CallerGone => {
                Problem::new(Code::Unavailable, "The room is still being created. Send the request again in a moment.")
                    .with_retry_after(1)
            }
            Self::OtherUser => Problem::new(
                Code::Forbidden,
                "The token in `Authorization` belongs to another user than `userId`. Send the token of that user.",
            ),
            Self::StartedByUser => Problem::new(
                Code::Forbidden,
                "This user's voice session was started with the user's token. Send that token with the voice key to replace it.",
            ),
            Self::Unauthenticated => Problem::unauthenticated(),
        }
    }
}

fn room_service(error: &CallError) -> Problem {
    if let CallError::Open { retry_after } = error {
        return Problem::new(Code::Unavailable, "The room service is unavailable. Try again shortly.")
            .with_retry_after(u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX).max(1));
    }
    if error.is_retryable() {
        return Problem::new(Code::Unavailable, "The room service did not answer in time. Try again shortly.")
            .with_retry_after(2);
    }
    tracing::error!(%error, "LiveKit refused a call");
    Problem::new(
        Code::UpstreamError,
        "The room service refused the call. Ask the operator of this server to check its LiveKit settings.",
    )
}
