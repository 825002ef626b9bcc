//! Every error of this service, and what a caller is told of it. The only file here that knows codes of problems.

use ensemble_chassis::IntoProblem;
use ensemble_rpc::RpcError;
use ensemble_store_kit::StoreError;
use ensemble_store_kit::cursor::InvalidCursor;
use ensemble_types::problem::{Code, Problem};

use crate::domain::{BadGraph, BadRun};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Absent, or somebody else's.
    #[error("there is no such thing")]
    NotFound,
    #[error(transparent)]
    BadRun(#[from] BadRun),
    /// Where in the body, or `?name`, and what is wrong there.
    #[error("{0}: {1}")]
    BadField(&'static str, &'static str),
    #[error("the account has no machine {machine:?}")]
    MachineNotFound { task: usize, machine: String },
    #[error("a machine token acts for its own machine only")]
    OtherMachine,
    #[error("the idempotency key was used with another body")]
    OtherBody,
    #[error("the account has {open} unfinished tasks")]
    TooManyTasks { open: i64, limit: i64 },
    #[error("there is nothing to try again")]
    NothingToRetry,
    #[error("the run is being cancelled")]
    Cancelling,
    #[error("the lease belongs to an attempt that is over")]
    LeaseLost,
    #[error("output is missing before this piece")]
    Gap { expected: u64 },
    #[error("the range lies outside")]
    OutOfRange { length: u64 },
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Peer(#[from] RpcError),
    /// The token expired or was revoked while its bearer waited.
    #[error("the token does not count any more")]
    Unauthenticated,
}

impl IntoProblem for Error {
    fn into_problem(self) -> Problem {
        match self {
            Self::NotFound => Problem::not_found(),
            Self::BadRun(bad) => bad_run(bad),
            Self::BadField(pointer, detail) => Problem::field(pointer, detail),
            Self::MachineNotFound { task, machine } => {
                Problem::new(Code::MachineNotFound, format!("You have no machine {machine:?}. Register it first."))
                    .with_field(format!("/tasks/{task}/machineId"), "is not the id of a machine of yours")
            }
            Self::OtherMachine => Problem::new(Code::Forbidden, "This token can only act for its own machine."),
            Self::OtherBody => {
                Problem::new(Code::IdempotencyMismatch, "Use a new `Idempotency-Key` for a new request.")
            }
            Self::TooManyTasks { open, limit } => Problem::new(
                Code::RateLimited,
                format!("You have {open} unfinished tasks, and {limit} is the most. Wait for some to end."),
            )
            .with_retry_after(60),
            Self::NothingToRetry => Problem::new(
                Code::Conflict,
                "No task of this run has failed or was cancelled, so there is nothing to retry.",
            ),
            Self::Cancelling => Problem::new(Code::Conflict, "The run is being cancelled. Retry it when it has ended.")
                .with_retry_after(5),
            Self::LeaseLost => Problem::new(
                Code::LeaseLost,
                "Stop this attempt and drop its report: the task has ended, or is in other hands.",
            ),
            Self::Gap { expected } => {
                Problem::new(Code::Conflict, "Output before this piece is missing. Go on from `expectedOffset`.")
                    .with("expectedOffset", expected)
            }
            Self::OutOfRange { length } => {
                Problem::new(Code::RangeNotSatisfiable, format!("The output has {length} bytes so far."))
                    .with("length", length)
            }
            Self::InvalidCursor(invalid) => invalid.into(),
            Self::Store(error) => error.into_problem(),
            Self::Peer(error) => error.into_problem(),
            Self::Unauthenticated => Problem::unauthenticated(),
        }
    }
}

fn bad_run(bad: BadRun) -> Problem {
    match bad {
        BadRun::Fields(fields) => {
            let problem = Problem::new(Code::InvalidArgument, "See `errors` for the fields to mend.");
            fields.into_iter().fold(problem, |problem, (pointer, detail)| problem.with_field(pointer, detail))
        }
        BadRun::Graph(bad) => {
            let detail = bad.to_string();
            match &bad {
                BadGraph::KeyTaken { task, .. } => Problem::field(format!("/tasks/{task}/taskKey"), detail),
                BadGraph::Cycle(_) => Problem::new(Code::DependencyCycle, format!("In this plan {detail}.")),
                BadGraph::Unknown { task, place, .. }
                | BadGraph::Own { task, place }
                | BadGraph::Repeated { task, place, .. } => Problem::new(
                    Code::InvalidDependency,
                    "`dependsOn` names other tasks of the same request, each once: by `taskKey`, or by position (\"0\").",
                )
                .with_field(format!("/tasks/{task}/dependsOn/{place}"), detail),
            }
        }
    }
}
