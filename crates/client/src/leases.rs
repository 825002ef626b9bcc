//! The runner's side of the orchestrator: take work, hold it, report it. Wants a machine token.

use std::time::Duration;

use ensemble_types::ids::LeaseId;
use ensemble_types::leases::{Lease, LeaseBeat, LeaseFinish, LeaseHeartbeat, LeaseOutput, LeaseRequest, Leases};
use ensemble_types::problem::Code;

use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;

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
    pub async fn beat_lease(&self, lease: LeaseId, fence: i64) -> Result<LeaseBeat> {
        let path = ["v1", "orchestrator", "leases", &lease.to_string(), "heartbeat"];
        self.post(&path, Repeat::Harmless).json(&LeaseHeartbeat { fence }).send().await
    }

    /// Hands in a piece of output. Repeating is harmless: the service trims what it has.
    pub async fn put_output(&self, lease: LeaseId, output: &LeaseOutput) -> Result<()> {
        let path = ["v1", "orchestrator", "leases", &lease.to_string(), "output"];
        self.post(&path, Repeat::Harmless).json(output).answer().await.map(drop)
    }

    /// Reports how the attempt ended. Repeating is harmless.
    pub async fn finish_lease(&self, lease: LeaseId, finish: &LeaseFinish) -> Result<()> {
        let path = ["v1", "orchestrator", "leases", &lease.to_string(), "finish"];
        self.post(&path, Repeat::Harmless).json(finish).answer().await.map(drop)
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
