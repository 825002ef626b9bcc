//! The runner's calls to the orchestrator: take a lease, keep it, report the result. They need a machine token.

use std::time::Duration;

use ensemble_types::changes::{LeaseDiff, OrderResult, OrderResultTaken};
use ensemble_types::ids::LeaseId;
use ensemble_types::leases::{Lease, LeaseBeat, LeaseFinish, LeaseHeartbeat, LeaseOutput, LeaseRequest, Leases};
use ensemble_types::problem::Code;
use reqwest::header::{HeaderName, HeaderValue};

use crate::call::{Call, LONGEST_RECORD};
use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;

/// A prompt has at most 1 MiB once outputs are filled in, and JSON writes a control character as 6 bytes. The other values of
/// a lease are short.
const LONGEST_LEASE: usize = (6 << 20) + (64 << 10);

/// A lease that this runner holds, with the values that every call about it must carry.
#[derive(Clone, Debug)]
pub struct HeldLease {
    pub id: LeaseId,
    pub fence: i64,
    /// The trace of the attempt. The calls carry it, so that the service's work appears in the same trace.
    pub traceparent: Option<String>,
}

impl From<&Lease> for HeldLease {
    fn from(lease: &Lease) -> Self {
        Self { id: lease.id, fence: lease.fence, traceparent: lease.traceparent.clone() }
    }
}

impl Client {
    /// Requests work and orders, and waits up to `waitMs` for them. The result can be empty.
    ///
    /// The request is repeated only when it did not arrive: a lease whose response was lost returns to the queue when
    /// it expires.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<Leases> {
        self.post(&["v1", "orchestrator", "leases"], Repeat::Harmful)
            .waiting(Duration::from_millis(request.wait_ms))
            .json(request)
            .at_most(LONGEST_LEASE * usize::try_from(request.capacity.clamp(1, 64)).unwrap_or(1))
            .send()
            .await
    }

    /// Sends the heartbeat of an attempt.
    pub async fn lease_heartbeat(&self, lease: &HeldLease, heartbeat: &LeaseHeartbeat) -> Result<LeaseBeat> {
        self.of_lease(lease, "heartbeat").json(heartbeat).send().await
    }

    /// Sends a piece of output. A repetition is harmless, because the service ignores bytes that it already has.
    pub async fn put_output(&self, lease: &HeldLease, output: &LeaseOutput) -> Result<()> {
        self.of_lease(lease, "output").json(output).send_whole().await.map(drop)
    }

    /// Sends a part of what the attempt changed. A repetition is harmless.
    pub async fn put_diff(&self, lease: &HeldLease, diff: &LeaseDiff) -> Result<()> {
        self.of_lease(lease, "diff").json(diff).send_whole().await.map(drop)
    }

    /// Reports what came of an order. A repetition is harmless.
    pub async fn order_result(&self, order: &str, result: &OrderResult) -> Result<OrderResultTaken> {
        self.post(&["v1", "orchestrator", "orders", order, "result"], Repeat::Harmless).json(result).send().await
    }

    /// Reports how the attempt ended. A repetition is harmless.
    pub async fn finish_lease(&self, lease: &HeldLease, finish: &LeaseFinish) -> Result<()> {
        self.of_lease(lease, "finish").json(finish).send_whole().await.map(drop)
    }

    fn of_lease(&self, lease: &HeldLease, what: &str) -> Call<'_> {
        let path = ["v1", "orchestrator", "leases", &lease.id.to_string(), what];
        // An invalid trace header must not prevent a report, so it is left out.
        let traceparent = lease.traceparent.as_deref().filter(|text| HeaderValue::from_str(text).is_ok());
        let call = self.post(&path, Repeat::Harmless).at_most(LONGEST_RECORD);
        call.header(HeaderName::from_static("traceparent"), traceparent)
    }
}

impl Error {
    /// The offset that the service expects next, after it refused output with a gap.
    pub fn expected_offset(&self) -> Option<u64> {
        match self {
            Self::Problem(problem) if problem.code == Code::Conflict => problem.extra.get("expectedOffset")?.as_u64(),
            _ => None,
        }
    }
}
