//! Every error of this service, and the problem that a caller gets for it. No other file of the service knows problem codes.

use ensemble_chassis::IntoProblem;
use ensemble_rpc::RpcError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_store_kit::{QuotaExceeded, StoreError};
use ensemble_types::problem::{Code, Problem};
use ensemble_types::runs::Provider;
use ensemble_types::signatures::OnlyOne;

use crate::domain::{InvalidGraph, InvalidRun, NoFollowUp};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It does not exist, or it belongs to another account.
    #[error("not found")]
    NotFound,
    #[error(transparent)]
    InvalidRun(#[from] InvalidRun),
    /// A JSON Pointer or `?name`, and what is wrong there.
    #[error("{0}: {1}")]
    InvalidField(&'static str, &'static str),
    #[error("the account has no machine {machine:?}")]
    MachineNotFound { task: usize, machine: String },
    #[error("no machine of the account offers {provider}")]
    NotOffered { task: usize, provider: Provider },
    #[error("a machine token can only act for its own machine")]
    WrongMachine,
    #[error("the idempotency key was used with another body")]
    IdempotencyMismatch,
    #[error("the id of the run or of one of its tasks, or the ref of one, is taken")]
    IdTaken,
    #[error("the account has {open} unfinished tasks")]
    TooManyTasks { open: i64, limit: i64 },
    #[error(transparent)]
    QuotaExceeded(#[from] QuotaExceeded),
    #[error("no task of the run can be retried")]
    NothingToRetry,
    #[error("the run is being cancelled")]
    Cancelling,
    #[error("nothing can be said to the task: {0:?}")]
    NoFollowUp(NoFollowUp),
    #[error("the run has not ended")]
    NotEnded,
    #[error("the task is not over")]
    TaskNotOver,
    /// Why.
    #[error("the changes cannot be applied or discarded: {0}")]
    NothingToApply(&'static str),
    #[error("the attempt has ended, or the task has a newer attempt")]
    LeaseLost,
    #[error("the agent was started, so the task cannot be handed back")]
    AgentStarted,
    #[error("output before this piece is missing")]
    OutputGap { expected: u64 },
    #[error("the range is outside of the output")]
    OutOfRange { length: u64 },
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Peer(#[from] RpcError),
    /// The token expired or was revoked while the request waited.
    #[error("the token is no longer valid")]
    Unauthenticated,
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::NotFound => Problem::not_found(),
            Self::InvalidRun(invalid) => invalid_run(invalid),
            Self::InvalidField(pointer, detail) => Problem::field(pointer, detail),
            Self::MachineNotFound { task, machine } => {
                Problem::new(Code::MachineNotFound, format!("You have no machine {machine:?}. Register it first."))
                    .with_field(format!("/tasks/{task}/machineId"), "is not the id of one of your machines")
            }
            Self::NotOffered { task, provider } => Problem::field(
                format!("/tasks/{task}/provider"),
                format!(
                    "no machine of yours that was there in the last 30 days offers {provider}. Name claude, codex or gemini, or start a runner that offers it"
                ),
            ),
            Self::WrongMachine => Problem::new(Code::Forbidden, "This token can only act for its own machine."),
            Self::IdempotencyMismatch => {
                Problem::new(Code::IdempotencyMismatch, "Use a new `Idempotency-Key` for a new request.")
            }
            Self::IdTaken => Problem::new(
                Code::Conflict,
                "The id of the run, or of one of its tasks, cannot be used. Make new ones, and submit it again.",
            ),
            Self::TooManyTasks { open, limit } => Problem::new(
                Code::RateLimited,
                format!("You have {open} unfinished tasks and may have {limit}. Wait until some have ended."),
            )
            .with_retry_after(60),
            Self::QuotaExceeded(QuotaExceeded { quota, limit, used }) => Problem::quota_exceeded(
                quota,
                limit,
                used,
                format!(
                    "Your runs take {used} of {limit} bytes, and this does not fit. Delete runs that you do not need any \
                     more, or ask the operator of this server for a larger QUOTA_RUN_BYTES."
                ),
            ),
            Self::NothingToRetry => Problem::new(
                Code::Conflict,
                "No task of this run has failed or was cancelled, so there is nothing to retry.",
            ),
            Self::Cancelling => {
                Problem::new(Code::Conflict, "The run is being cancelled. Retry it after it has ended.")
                    .with_retry_after(5)
            }
            Self::NoFollowUp(why) => Problem::new(Code::Conflict, why.to_string()),
            Self::NotEnded => {
                Problem::new(Code::Conflict, "The run has not ended. Cancel it first, and delete it when it has ended.")
            }
            Self::TaskNotOver => {
                Problem::new(Code::Conflict, "The task is not over. Wait for its end, or cancel the run.")
            }
            Self::NothingToApply(why) => Problem::new(Code::Conflict, why),
            Self::LeaseLost => Problem::new(
                Code::LeaseLost,
                "The task has ended, or another attempt has taken it over. Stop this attempt and discard its report.",
            ),
            Self::AgentStarted => Problem::new(
                Code::Conflict,
                "Output of the agent has arrived, so it was started. Report how the attempt ended instead.",
            ),
            Self::OutputGap { expected } => Problem::new(
                Code::Conflict,
                "Output before this piece is missing. Send the output from `expectedOffset` on.",
            )
            .with("expectedOffset", expected),
            Self::OutOfRange { length } => Problem::new(
                Code::RangeNotSatisfiable,
                format!("The output has {length} bytes so far. Request a range within them."),
            )
            .with("length", length),
            Self::InvalidCursor(invalid) => invalid.into(),
            Self::Store(error) => error.into_problem(),
            Self::Peer(error) => error.into_problem(),
            Self::Unauthenticated => Problem::unauthenticated(),
        }
    }
}

fn invalid_run(invalid: InvalidRun) -> Problem {
    match invalid {
        InvalidRun::Fields(fields) => {
            let problem = Problem::new(
                Code::InvalidArgument,
                "Some fields are invalid. Correct the fields in `errors` and try again.",
            );
            fields.into_iter().fold(problem, |problem, (pointer, detail)| problem.with_field(pointer, detail))
        }
        InvalidRun::Graph(invalid) => {
            let detail = invalid.to_string();
            match &invalid {
                InvalidGraph::KeyTaken { task, .. } => Problem::field(format!("/tasks/{task}/taskKey"), detail),
                InvalidGraph::NoOutput { task, .. } => Problem::new(
                    Code::InvalidDependency,
                    "What a live session says stays in the session. No prompt can use it.",
                )
                .with_field(format!("/tasks/{task}/prompt"), detail),
                InvalidGraph::Cycle(_) => Problem::new(Code::DependencyCycle, format!("In this run {detail}. Remove one of these dependencies.")),
                InvalidGraph::Unknown { task, place, .. }
                | InvalidGraph::SelfDependency { task, place }
                | InvalidGraph::Repeated { task, place, .. } => Problem::new(
                    Code::InvalidDependency,
                    "`dependsOn` must name other tasks of the same request, each once, by `taskKey` or by position (\"0\").",
                )
                .with_field(format!("/tasks/{task}/dependsOn/{place}"), detail),
            }
        }
    }
}

impl From<OnlyOne> for Error {
    fn from(only: OnlyOne) -> Self {
        let pointer = if only.lacks == "signature" { "/signature" } else { "/signedBody" };
        Self::InvalidField(pointer, "must be given: a signature and what it signs come together")
    }
}
