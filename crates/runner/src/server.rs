//! The calls of the runner to the server, and their errors from the runner's point of view.

use std::time::Duration;

use ensemble_client::{Client, Error, HeldLease, Polls, Retry};
use ensemble_types::changes::{LeaseDiff, OrderResult};
use ensemble_types::ids::MachineId;
use ensemble_types::leases::{LeaseBeat, LeaseFinish, LeaseHeartbeat, LeaseOutput, LeaseRequest, Leases};
use ensemble_types::machines::Activity;
use ensemble_types::problem::Code;
use futures_util::future::BoxFuture;

use crate::Config;

pub type Answer<'a, T> = BoxFuture<'a, Result<T, ServerError>>;

/// The server as the runner uses it. Every call is one attempt, because the runner decides itself how long to retry.
pub trait Server: Send + Sync + 'static {
    /// Requests leases and orders. The server may hold the request open.
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Answer<'a, Leases>;
    /// Renews a lease.
    fn heartbeat<'a>(&'a self, lease: &'a HeldLease, beat: &'a LeaseHeartbeat) -> Answer<'a, LeaseBeat>;
    /// A part of what an attempt changed.
    fn diff<'a>(&'a self, lease: &'a HeldLease, diff: &'a LeaseDiff) -> Answer<'a, ()>;
    fn order_result<'a>(&'a self, order: &'a str, result: &'a OrderResult) -> Answer<'a, ()>;
    fn output<'a>(&'a self, lease: &'a HeldLease, output: &'a LeaseOutput) -> Answer<'a, ()>;
    fn finish<'a>(&'a self, lease: &'a HeldLease, finish: &'a LeaseFinish) -> Answer<'a, ()>;
    /// The machine's heartbeat.
    fn machine_heartbeat<'a>(&'a self, machine: &'a MachineId, activity: Activity) -> Answer<'a, ()>;
    /// The machine's last heartbeat.
    fn sign_off<'a>(&'a self, machine: &'a MachineId, activity: Activity) -> Answer<'a, ()>;
}

/// The meaning of a failed call for the runner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    #[error("the lease is lost")]
    LeaseLost,
    #[error("the output has a gap; the server expects byte {0}")]
    Gap(u64),
    /// The server will never accept this call.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server does not accept the key or token now.
    #[error("the server does not accept this machine: {0}")]
    Unauthorized(String),
    /// No response, or a temporary refusal.
    #[error("{reason}")]
    Unavailable { reason: String, retry_after: Option<Duration> },
}

impl ServerError {
    /// How long the server wants this program to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The client of this machine.
pub(crate) fn connect(config: &Config) -> Result<Client, Error> {
    // A person waits for what these sessions are asked, as an interrupt.
    let seen = Duration::from_secs(5);
    Client::builder(config.server.clone())
        .credential(config.credential.clone())
        .retry(Retry::never())
        .answer_within(config.timing.answer_within)
        .polls(Polls { seen, ..Polls::default() })
        .user_agent(concat!("ensemble-runner/", env!("CARGO_PKG_VERSION")))
        .build()
}

impl Server for Client {
    fn lease<'a>(&'a self, request: &'a LeaseRequest) -> Answer<'a, Leases> {
        Box::pin(async move { Client::lease(self, request).await.map_err(ServerError::from) })
    }

    fn heartbeat<'a>(&'a self, lease: &'a HeldLease, beat: &'a LeaseHeartbeat) -> Answer<'a, LeaseBeat> {
        Box::pin(async move { self.lease_heartbeat(lease, beat).await.map_err(ServerError::from) })
    }

    fn diff<'a>(&'a self, lease: &'a HeldLease, diff: &'a LeaseDiff) -> Answer<'a, ()> {
        Box::pin(async move { self.put_diff(lease, diff).await.map_err(ServerError::from) })
    }

    fn order_result<'a>(&'a self, order: &'a str, result: &'a OrderResult) -> Answer<'a, ()> {
        Box::pin(async move { self.order_result(order, result).await.map(drop).map_err(ServerError::from) })
    }

    fn output<'a>(&'a self, lease: &'a HeldLease, output: &'a LeaseOutput) -> Answer<'a, ()> {
        Box::pin(async move { self.put_output(lease, output).await.map_err(ServerError::from) })
    }

    fn finish<'a>(&'a self, lease: &'a HeldLease, finish: &'a LeaseFinish) -> Answer<'a, ()> {
        Box::pin(async move { self.finish_lease(lease, finish).await.map_err(ServerError::from) })
    }

    fn machine_heartbeat<'a>(&'a self, machine: &'a MachineId, activity: Activity) -> Answer<'a, ()> {
        Box::pin(async move { self.machine_heartbeat(machine, activity).await.map(drop).map_err(ServerError::from) })
    }

    fn sign_off<'a>(&'a self, machine: &'a MachineId, activity: Activity) -> Answer<'a, ()> {
        Box::pin(async move { self.machine_signs_off(machine, activity).await.map(drop).map_err(ServerError::from) })
    }
}

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        if let Some(expected) = error.expected_offset() {
            return Self::Gap(expected);
        }
        let reason = with_sources(&error);
        let Error::Problem(problem) = error else {
            return match error {
                Error::Argument(_) | Error::NoCredential(_) | Error::Address(_) | Error::Setup(_) => {
                    Self::Refused(reason)
                }
                _ => Self::Unavailable { reason, retry_after: None },
            };
        };
        match problem.code {
            Code::LeaseLost => Self::LeaseLost,
            Code::Unauthenticated | Code::Forbidden | Code::DeviceRemoved => Self::Unauthorized(reason),
            Code::RateLimited | Code::RequestTimeout => {
                Self::Unavailable { reason, retry_after: pause(problem.retry_after) }
            }
            code if code.status() >= 500 => Self::Unavailable { reason, retry_after: pause(problem.retry_after) },
            _ => Self::Refused(reason),
        }
    }
}

fn pause(seconds: Option<u32>) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs(u64::from(seconds)))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensemble_types::problem::Problem;

    #[test]
    fn only_what_may_change_is_tried_again() {
        let of = |problem: Problem| ServerError::from(Error::from(problem));
        assert_eq!(of(Problem::new(Code::LeaseLost, "")), ServerError::LeaseLost);
        assert_eq!(of(Problem::new(Code::Conflict, "").with("expectedOffset", 7)), ServerError::Gap(7));
        assert!(matches!(
            of(Problem::new(Code::Unavailable, "")),
            ServerError::Unavailable { retry_after: Some(_), .. }
        ));
        assert!(matches!(of(Problem::new(Code::RateLimited, "")), ServerError::Unavailable { .. }));
        assert!(matches!(of(Problem::unauthenticated()), ServerError::Unauthorized(_)));
        assert!(matches!(of(Problem::not_found()), ServerError::Refused(_)));
        assert!(matches!(of(Problem::quota_exceeded("runBytes", 1, 2, "")), ServerError::Refused(_)));
    }
}
