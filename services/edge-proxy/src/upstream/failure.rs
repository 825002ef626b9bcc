//! What can go wrong behind the edge, and what the client and the log get to know of it.

use std::error::Error;
use std::io;

use ensemble_chassis::http::BodyError;
use ensemble_types::problem::{Code, Problem};
use hyper_util::client::legacy::Error as ClientError;

use super::upload::BodyEnded;
use crate::domain::route_table::Upstream;

/// Why there is no answer of a service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nothing was sent: the name has no address.
    #[error("the service has no address")]
    NoAddress,
    /// Nothing was sent.
    #[error("no address of the service takes connections")]
    Connect(#[source] ClientError),
    /// The service may have acted on the request.
    #[error("the connection broke before the answer")]
    Broken(#[source] ClientError),
    /// The service may have acted on the request.
    #[error("the service did not answer in time")]
    Timeout,
    /// The edge stops, and this long-poll would outlast it.
    #[error("the edge stops")]
    Draining,
    /// The client asks for too much, or its body did not arrive.
    #[error("{}", .0.detail)]
    Client(Problem),
}

impl Failure {
    /// The text for the client.
    pub(crate) fn into_problem(self, upstream: Upstream) -> Problem {
        let (code, what) = match self {
            Self::Client(problem) => return problem,
            Self::Draining => return Problem::new(Code::Unavailable, "The edge is being restarted. Ask again."),
            Self::Connect(error) if is_timeout(&error) => {
                (Code::UpstreamTimeout, "was not reached in time. Nothing was done; try again.")
            }
            Self::NoAddress | Self::Connect(_) => {
                (Code::Unavailable, "cannot be reached. Nothing was done; try again.")
            }
            Self::Timeout => (Code::UpstreamTimeout, "did not answer in time. It may have done what was asked."),
            Self::Broken(_) => (Code::UpstreamError, "broke off before its answer. It may have done what was asked."),
        };
        Problem::new(code, format!("The service {} {what}", upstream.name()))
    }

    /// One line in the log. A client's mistake is not worth a warning.
    pub(crate) fn log(&self, upstream: Upstream) {
        let service = upstream.name();
        match self {
            Self::Client(_) | Self::Draining => {
                tracing::debug!(service, error = %self, "A request was not finished")
            }
            _ => tracing::warn!(service, error = ?self, "A service did not answer"),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Self::Client(error.into())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let ended = causes(&error).find_map(|cause| cause.downcast_ref::<BodyEnded>());
        match ended.map(|BodyEnded(problem)| problem.clone()) {
            Some(problem) => Self::Client(problem),
            None if error.is_connect() => Self::Connect(error),
            None => Self::Broken(error),
        }
    }
}

fn is_timeout(error: &ClientError) -> bool {
    let mut errors = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    errors.any(|error| error.kind() == io::ErrorKind::TimedOut)
}

fn causes(error: &ClientError) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
