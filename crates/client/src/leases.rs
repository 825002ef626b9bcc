//! The runner's side of the orchestrator: take work, hold it, report it. Wants a machine token.

use std::time::Duration;

use ensemble_types::ids::LeaseId;
use ensemble_types::leases::{Lease, LeaseBeat, LeaseFinish, LeaseHeartbeat, LeaseOutput, LeaseRequest, Leases};
use ensemble_types::problem::Code;
use reqwest::header::{HeaderName, HeaderValue};

use crate::call::Call;
use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;

/// A lease in the hands of its runner: what its calls have to say of it.
#[derive(Clone, Debug)]
pub struct HeldLease {
    pub id: LeaseId,
    pub fence: i64,
    /// The trace that the attempt belongs to, so that what the service does about it is seen there.
    pub traceparent: Option<String>,
}

impl From<&Lease> for HeldLease {
    fn from(lease: &Lease) -> Self {
        Self { id: lease.id, fence: lease.fence, traceparent: lease.traceparent.clone() }
    }
}

impl Client {
    /// Asks for work and waits up to `waitMs` for it. May come back empty.
    ///
    /// Sent again only when it did not arrive: a lease whose answer was lost goes back to the queue by itself.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Vec<Lease>> {
        let answer: Leases = self
            .post(&["v1", "orchestrator", "leases"], Repeat::Harmful)
            .waiting(Duration::from_millis(request.wait_ms))
            .json(request)
            .send()
            .await?;
        Ok(answer.leases)
    }

    /// Says that the attempt is still being made.
    pub async fn beat_lease(&self, lease: &HeldLease) -> Result<LeaseBeat> {
        self.of_lease(lease, "heartbeat").json(&LeaseHeartbeat { fence: lease.fence }).send().await
    }

    /// Hands in a piece of output. Repeating is harmless: the service trims what it has.
    pub async fn put_output(&self, lease: &HeldLease, output: &LeaseOutput) -> Result<()> {
        self.of_lease(lease, "output").json(output).answer().await.map(drop)
    }

    /// Reports how the attempt ended. Repeating is harmless.
    pub async fn finish_lease(&self, lease: &HeldLease, finish: &LeaseFinish) -> Result<()> {
        self.of_lease(lease, "finish").json(finish).answer().await.map(drop)
    }

    fn of_lease(&self, lease: &HeldLease, what: &str) -> Call<'_> {
        let path = ["v1", "orchestrator", "leases", &lease.id.to_string(), what];
        // A trace is no reason to lose a report: what cannot be a header is left out.
        let traceparent = lease.traceparent.as_deref().filter(|text| HeaderValue::from_str(text).is_ok());
        self.post(&path, Repeat::Harmless).header(HeaderName::from_static("traceparent"), traceparent)
    }
}

impl Error {
    /// Where the service wants the output to go on, when it refused a piece that left a gap.
    pub fn expected_offset(&self) -> Option<u64> {
        match self {
            Self::Problem(problem) if problem.code == Code::Conflict => problem.extra.get("expectedOffset")?.as_u64(),
            _ => None,
        }
    }
}
