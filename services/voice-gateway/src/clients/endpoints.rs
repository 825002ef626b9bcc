//! Calls to the operator's endpoints. Nothing of an answer but its status is read, so that one which never ends costs nothing.

use std::time::Duration;

use ensemble_chassis::outward::{Outward, retry_after};
use ensemble_types::time::Timestamp;
use reqwest::StatusCode;

use crate::domain::endpoint::Endpoint;
use crate::store::webhook_deliveries::Delivery;

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Taken,
    /// The endpoint wants none any more (410).
    Gone,
    /// It may be taken later, at the earliest after this time. Redirects and refusals too: the receiver may be put right.
    Later(Option<Duration>),
    /// There was no answer.
    Silent,
}

/// Sends one delivery, signed again for this try.
pub(crate) async fn send(outward: &Outward, endpoint: &Endpoint, delivery: &Delivery, now: Timestamp) -> Sent {
    let seconds = now.unix_seconds();
    let request = outward
        .post(endpoint.url.clone())
        .header("content-type", "application/json")
        .header("webhook-id", &delivery.id)
        .header("webhook-timestamp", seconds)
        .header("webhook-signature", endpoint.signature(&delivery.id, seconds, &delivery.body))
        .body(delivery.body.clone());
    match request.send().await {
        Ok(answer) => outcome(answer.status(), retry_after(answer.headers(), now)),
        Err(error) => {
            tracing::debug!(endpoint = endpoint.name, error = %error.without_url(), "An endpoint could not be reached");
            Sent::Silent
        }
    }
}

fn outcome(status: StatusCode, after: Option<Duration>) -> Sent {
    match status {
        _ if status.is_success() => Sent::Taken,
        StatusCode::GONE => Sent::Gone,
        _ => Sent::Later(after),
    }
}
