//! What a client is told when a service cannot be asked or does not answer.

use ensemble_types::problem::{Code, Problem};

use crate::domain::refusal::Refusal;
use crate::domain::route_table::Upstream;
use crate::upstream::failure::Failure;

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.detail)
    }
}

/// The caller's text; the log gets the rest.
pub(super) fn problem(failure: &Failure, upstream: Upstream) -> Problem {
    let name = upstream.name();
    match failure {
        Failure::NowhereToGo | Failure::Connect(_) => Problem::new(
            Code::Unavailable,
            format!("The service {name} cannot be reached. Nothing was done; try again."),
        ),
        Failure::ConnectTimeout => Problem::new(
            Code::UpstreamTimeout,
            format!("The service {name} was not reached in time. Nothing was done; try again."),
        ),
        Failure::Timeout => Problem::new(
            Code::UpstreamTimeout,
            format!("The service {name} did not answer in time. It may have done what was asked."),
        ),
        Failure::Closing => Problem::new(Code::Unavailable, "The edge is being restarted. Ask again."),
        Failure::Broken(_) | Failure::Closed | Failure::Head(_) => Problem::new(
            Code::UpstreamError,
            format!("The service {name} broke off before its answer. It may have done what was asked."),
        ),
        Failure::Client(_) => Problem::new(Code::InvalidArgument, "The body is shorter than was announced."),
    }
}

/// One line for us. What a client did is no news.
pub(super) fn log(failure: &Failure, upstream: Upstream, request_id: &str) {
    let service = upstream.name();
    match failure {
        Failure::Client(_) | Failure::Closing => {
            tracing::debug!(service, request.id = request_id, %failure, "A request was not finished");
        }
        _ => {
            let cause = std::error::Error::source(failure).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(service, request.id = request_id, error = %failure, cause, "A service did not answer");
        }
    }
}
